package main

import (
	"bufio"
	"encoding/binary"
	"errors"
	"io"
	"strings"
)

// The types of frames (RFC 9113, section 6).
const (
	frameData         = 0
	frameHeaders      = 1
	framePriority     = 2
	frameReset        = 3
	frameSettings     = 4
	framePush         = 5
	framePing         = 6
	frameGoAway       = 7
	frameWindow       = 8
	frameContinuation = 9
)

// The flags of frames.
const (
	flagEndStream  = 1
	flagAck        = 1
	flagEndHeaders = 4
	flagPadded     = 8
	flagPriority   = 0x20
)

const (
	frameHead = 9       // bytes before a frame's payload
	maxFrame  = 1 << 14 // bytes of a payload: the default limit for servers
	maxFrames = 256     // in one call: an honest server sends about ten
)

type frame struct {
	kind, flags byte
	stream      uint32
	payload     []byte
}

func (f frame) has(flag byte) bool { return f.flags&flag != 0 }

// appendFrame adds a frame.
func appendFrame(b []byte, kind, flags byte, stream uint32, payload []byte) []byte {
	n := len(payload)
	b = append(b, byte(n>>16), byte(n>>8), byte(n), kind, flags)
	b = binary.BigEndian.AppendUint32(b, stream)
	return append(b, payload...)
}

// framer reads frames, and sends pending output before it waits.
type framer struct {
	in   *bufio.Reader
	out  *bufio.Writer
	left int // frames that may still be read
}

var (
	errTooMany = errors.New("the server sends too many frames")
	errLarge   = errors.New("the server sends a frame that is larger than 16 KiB")
	errNotHTTP = errors.New("the server does not speak HTTP/2")
	errHTTP1   = errors.New("the server answers in HTTP/1, not in HTTP/2")
)

// next returns the next frame.
func (f *framer) next() (frame, error) {
	if f.left--; f.left < 0 {
		return frame{}, errTooMany
	}
	head, err := f.read(frameHead)
	if err != nil {
		return frame{}, err
	}
	n := int(head[0])<<16 | int(head[1])<<8 | int(head[2])
	got := frame{kind: head[3], flags: head[4], stream: binary.BigEndian.Uint32(head[5:]) &^ (1 << 31)}
	if n > maxFrame {
		return frame{}, tooLarge(head)
	}
	if f.left == maxFrames-1 && (got.kind != frameSettings || got.has(flagAck)) {
		return frame{}, errNotHTTP // the first frame must be SETTINGS: RFC 9113, section 3.4
	}
	got.payload, err = f.read(n)
	return got, err
}

// send adds a frame to the pending output. Errors are returned when the output is flushed.
func (f *framer) send(kind, flags byte, stream uint32, payload []byte) {
	_, _ = f.out.Write(appendFrame(nil, kind, flags, stream, payload))
}

// read returns the next n bytes.
func (f *framer) read(n int) ([]byte, error) {
	if f.in.Buffered() < n {
		if err := f.out.Flush(); err != nil {
			return nil, err
		}
	}
	b := make([]byte, n)
	_, err := io.ReadFull(f.in, b)
	return b, err
}

// tooLarge distinguishes a large frame from other protocols.
func tooLarge(head []byte) error {
	switch text := string(head); {
	case strings.HasPrefix(text, "HTTP/"):
		return errHTTP1
	case head[3] > frameContinuation:
		return errNotHTTP
	}
	return errLarge
}

// content returns the payload of a DATA or HEADERS frame without its padding and
// priority.
func (f frame) content() ([]byte, error) {
	b, pad := f.payload, 0
	if f.has(flagPadded) {
		if len(b) == 0 {
			return nil, errPadding
		}
		pad, b = int(b[0]), b[1:]
	}
	if f.kind == frameHeaders && f.has(flagPriority) {
		if len(b) < 5 {
			return nil, errPadding
		}
		b = b[5:]
	}
	if pad > len(b) {
		return nil, errPadding
	}
	return b[:len(b)-pad], nil
}

var errPadding = errors.New("a frame is shorter than its padding")
