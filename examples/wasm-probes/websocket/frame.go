package main

import (
	"bufio"
	"bytes"
	"crypto/rand"
	"encoding/binary"
	"errors"
	"fmt"
	"io"
	"net"
	"strings"
)

// Limits on the data that a server sends after the handshake, in bytes.
const (
	maxKept    = 64 << 10 // of one message; the rest is ignored
	maxRead    = 1 << 20  // of all messages in one attempt
	maxControl = 125      // of a close, ping or pong (RFC 6455, section 5.5)
	perFrame   = 64       // counted for each frame in addition to its payload
)

// The kinds of frames (RFC 6455, section 11.8).
const (
	opContinuation = 0
	opText         = 1
	opBinary       = 2
	opClose        = 8
	opPing         = 9
	opPong         = 10
)

// conversation is the exchange of frames after the handshake.
type conversation struct {
	to   io.Writer
	from *bufio.Reader
	left int // bytes that may still be read

	ping   []byte // payload of the awaited pong; nil if there is none
	expect string // text that a message must contain; empty if none is awaited

	message  bytes.Buffer // the received part of a message
	open     bool         // more parts of the message follow
	messages int          // number of received messages
	last     string       // the last message
	said     string       // the expected message
}

// ask sends the ping and the message.
func (v *conversation) ask(ping bool, send string) error {
	if ping {
		v.ping = make([]byte, 8)
		rand.Read(v.ping) // never fails
		if err := v.write(opPing, v.ping); err != nil {
			return err
		}
	}
	if send == "" {
		return nil
	}
	return v.write(opText, []byte(send))
}

// write sends a whole message in one frame.
func (v *conversation) write(kind byte, payload []byte) error {
	const final, masked = 0x80, 0x80
	b := []byte{final | kind}
	switch n := len(payload); {
	case n <= maxControl:
		b = append(b, masked|byte(n))
	case n <= 0xffff:
		b = binary.BigEndian.AppendUint16(append(b, masked|126), uint16(n))
	default:
		b = binary.BigEndian.AppendUint64(append(b, masked|127), uint64(n))
	}
	var mask [4]byte
	rand.Read(mask[:]) // never fails
	b = append(b, mask[:]...)
	for i, c := range payload {
		b = append(b, c^mask[i%4])
	}
	_, err := v.to.Write(b)
	return err
}

// await reads until the awaited pong and message have been received.
func (v *conversation) await() error {
	for v.ping != nil || v.expect != "" {
		if err := v.next(); err != nil {
			return v.missing(err)
		}
	}
	return nil
}

// errTooMuch means that a server sent maxRead bytes without the awaited frames.
var errTooMuch = fmt.Errorf("more than %d bytes came", maxRead)

// missing adds the awaited frame to an error. It distinguishes a server that sends other messages
// from a silent one.
func (v *conversation) missing(err error) error {
	awaited, reason := "the pong", "websocket.pong"
	if v.ping == nil {
		awaited, reason = quote(v.expect), "websocket.expect"
	}
	var late net.Error
	talks := v.messages > 0 && errors.As(err, &late) && late.Timeout()
	if talks || errors.Is(err, errTooMuch) {
		return faultf(reason, "waiting for %s: %v; %d messages came, the last was %s", awaited, err, v.messages, quote(v.last))
	}
	return fmt.Errorf("waiting for %s: %w", awaited, err)
}

// next reads and handles a frame.
func (v *conversation) next() error {
	f, err := readHead(v.from)
	if err != nil {
		return err
	}
	if int64(f.length) > int64(v.left-perFrame) { // the length is below 1<<63
		return errTooMuch
	}
	v.left -= perFrame + int(f.length)
	if f.kind < opClose {
		return v.data(f)
	}
	payload := make([]byte, f.length)
	if _, err := io.ReadFull(v.from, payload); err != nil {
		return err
	}
	return v.control(f.kind, payload)
}

// head is the header of a frame.
type head struct {
	final  bool
	kind   byte
	length uint64
}

// readHead reads the header of a server's frame (RFC 6455, section 5.2).
func readHead(r io.Reader) (head, error) {
	var b [8]byte
	if _, err := io.ReadFull(r, b[:2]); err != nil {
		return head{}, err
	}
	f := head{final: b[0]&0x80 != 0, kind: b[0] & 0x0f, length: uint64(b[1] & 0x7f)}
	reserved, masked := b[0]&0x70 != 0, b[1]&0x80 != 0
	isControl := f.kind >= opClose
	switch {
	case reserved:
		return f, faultf("websocket.protocol", "a frame has reserved bits set: %#x", b[0])
	case masked:
		return f, faultf("websocket.protocol", "a frame is masked, which only a client's may be")
	case f.kind > opPong || f.kind > opBinary && f.kind < opClose:
		return f, faultf("websocket.protocol", "a frame is of the unknown kind %d", f.kind)
	case isControl && (!f.final || f.length > maxControl):
		return f, faultf("websocket.protocol", "a control frame is in parts, or longer than %d bytes", maxControl)
	case f.length < 126:
		return f, nil
	}
	return longHead(r, f)
}

// longHead reads a length that does not fit in the second byte.
func longHead(r io.Reader, f head) (head, error) {
	var b [8]byte
	least, length := uint64(126), b[6:]
	if f.length == 127 {
		least, length = 1<<16, b[:]
	}
	if _, err := io.ReadFull(r, length); err != nil {
		return f, err
	}
	f.length = binary.BigEndian.Uint64(b[:])
	if f.length < least || f.length >= 1<<63 {
		return f, faultf("websocket.protocol", "invalid frame length %#x", f.length)
	}
	return f, nil
}

// data reads one part of a message, and checks the message after the last part.
func (v *conversation) data(f head) error {
	if (f.kind == opContinuation) != v.open {
		return faultf("websocket.protocol", "a message's parts are mixed with others")
	}
	keep := min(int64(f.length), int64(maxKept-v.message.Len()))
	if _, err := io.CopyN(&v.message, v.from, keep); err != nil {
		return err
	}
	if _, err := io.CopyN(io.Discard, v.from, int64(f.length)-keep); err != nil {
		return err
	}
	if v.open = !f.final; v.open {
		return nil
	}
	v.messages++
	v.last = v.message.String()
	v.message.Reset()
	if v.expect != "" && strings.Contains(v.last, v.expect) {
		v.said, v.expect = v.last, ""
	}
	return nil
}

// control handles a control frame.
func (v *conversation) control(kind byte, payload []byte) error {
	switch kind {
	case opPing:
		return v.write(opPong, payload)
	case opPong:
		if v.ping != nil && bytes.Equal(payload, v.ping) {
			v.ping = nil
		}
		return nil
	}
	if len(payload) < 2 {
		return faultf("websocket.closed", "the server closes the connection")
	}
	return faultf("websocket.closed", "the server closes the connection: %d %s", binary.BigEndian.Uint16(payload), quote(string(payload[2:])))
}
