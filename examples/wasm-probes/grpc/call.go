package main

import (
	"bufio"
	"context"
	"encoding/binary"
	"errors"
	"fmt"
	"io"
	"strings"
	"time"

	"golang.org/x/net/http2/hpack"
)

// preface is the connection preface of a client (RFC 9113, section 3.4), with SETTINGS that disable
// server push and limit the headers.
var preface = appendFrame([]byte("PRI * HTTP/2.0\r\n\r\nSM\r\n\r\n"), frameSettings, 0, 0, []byte{
	0, 2, 0, 0, 0, 0, // ENABLE_PUSH
	0, 6, 0, 0, maxHeaders >> 8, maxHeaders & 0xff, // MAX_HEADER_LIST_SIZE
})

const (
	maxHeaders = 8 << 10 // bytes of a header block, and of a string in it
	maxMessage = 1 << 10 // bytes of the response message: an honest one has 2
	callStream = 1
)

// requestHead returns the header block of a call of Check. It does not use HPACK's tables, which
// are useless for a single request.
func requestHead(ctx context.Context, secure bool, authority string, metadata []byte) []byte {
	scheme := "http"
	if secure {
		scheme = "https"
	}
	b := appendField(nil, ":method", "POST")
	b = appendField(b, ":scheme", scheme)
	b = appendField(b, ":path", "/grpc.health.v1.Health/Check")
	b = appendField(b, ":authority", authority)
	if deadline, ok := ctx.Deadline(); ok {
		left := max(time.Until(deadline).Milliseconds(), 1)
		b = appendField(b, "grpc-timeout", fmt.Sprint(min(left, 99999999), "m")) // at most 8 digits
	}
	b = appendField(b, "content-type", "application/grpc")
	b = appendField(b, "te", "trailers")
	b = appendField(b, "user-agent", "sonde-grpc/1.0")
	return append(b, metadata...)
}

// appendField adds a header field: a literal without indexing (RFC 7541, section
// 6.2.2).
func appendField(b []byte, name, value string) []byte {
	return appendText(appendText(append(b, 0), name), value)
}

// appendText appends a string with its length in HPACK's encoding.
func appendText(b []byte, s string) []byte {
	if len(s) < 127 {
		return append(append(b, byte(len(s))), s...)
	}
	b = binary.AppendUvarint(append(b, 127), uint64(len(s)-127))
	return append(b, s...)
}

// message returns the length-prefixed request for a service's health.
func message(service string) []byte {
	var m []byte
	if service != "" {
		m = append(binary.AppendUvarint([]byte{1<<3 | 2}, uint64(len(service))), service...)
	}
	b := binary.BigEndian.AppendUint32([]byte{0}, uint32(len(m)))
	return append(b, m...)
}

// answer is the response of a call.
type answer struct {
	httpStatus  string
	contentType string
	grpcStatus  string // decimal; empty while the trailers are missing
	grpcMessage string
	message     []byte // including the prefix of 5 bytes
}

// exchange is one call.
type exchange struct {
	*framer
	decoder *hpack.Decoder
	block   []byte // of an incomplete header block
	ends    bool   // the stream ends after the block
	answer  answer
}

// call sends a request and returns the server's response.
func call(conn io.ReadWriter, head, message []byte) (answer, error) {
	x := &exchange{framer: &framer{in: bufio.NewReader(conn), out: bufio.NewWriter(conn), left: maxFrames}}
	x.decoder = hpack.NewDecoder(4096, x.field)
	x.decoder.SetMaxStringLength(maxHeaders)
	_, _ = x.out.Write(preface) // errors are returned when the output is flushed
	x.send(frameHeaders, flagEndHeaders, callStream, head)
	x.send(frameData, flagEndStream, callStream, message)
	for {
		f, err := x.next()
		if err != nil {
			return x.answer, err
		}
		done, err := x.frame(f)
		if done || err != nil {
			return x.answer, err
		}
	}
}

// field records a header field of the response.
func (x *exchange) field(f hpack.HeaderField) {
	switch f.Name {
	case ":status":
		x.answer.httpStatus = f.Value
	case "content-type":
		x.answer.contentType = f.Value
	case "grpc-status":
		x.answer.grpcStatus = f.Value
	case "grpc-message":
		x.answer.grpcMessage = f.Value
	}
}

var errContinuation = errors.New("a header block is not continued")

// frame handles a frame. It returns true when the response is complete.
func (x *exchange) frame(f frame) (done bool, err error) {
	if (x.block != nil) != (f.kind == frameContinuation) {
		return false, errContinuation
	}
	switch f.kind {
	case frameSettings:
		if !f.has(flagAck) {
			x.send(frameSettings, flagAck, 0, nil)
		}
	case framePing:
		if !f.has(flagAck) && len(f.payload) == 8 {
			x.send(framePing, flagAck, 0, f.payload)
		}
	case frameGoAway:
		return false, goAway(f.payload)
	case framePush:
		return false, errors.New("the server pushes, although push is disabled")
	case frameData, frameHeaders, frameContinuation, frameReset:
		if f.stream != callStream {
			return false, fmt.Errorf("a frame is for stream %d, which does not exist", f.stream)
		}
		return x.streamFrame(f)
	}
	return false, nil // unknown frames must be ignored: RFC 9113, section 4.1
}

// streamFrame handles a frame of the call.
func (x *exchange) streamFrame(f frame) (done bool, err error) {
	switch f.kind {
	case frameReset:
		return false, fmt.Errorf("the server has reset the call: %s", errorCode(f.payload))
	case frameContinuation:
		return x.headers(f.payload, f.has(flagEndHeaders))
	}
	b, err := f.content()
	if err != nil {
		return false, err
	}
	if f.kind == frameHeaders {
		x.ends = f.has(flagEndStream)
		return x.headers(b, f.has(flagEndHeaders))
	}
	if len(x.answer.message)+len(b) > 5+maxMessage {
		return false, errors.New("the answer is longer than a state of health is")
	}
	x.answer.message = append(x.answer.message, b...)
	return f.has(flagEndStream), nil
}

// headers collects a header block, and decodes it when it is complete.
func (x *exchange) headers(b []byte, end bool) (done bool, err error) {
	if len(x.block)+len(b) > maxHeaders {
		return false, errors.New("the server sends too many headers")
	}
	x.block = append(x.block, b...)
	if !end {
		if x.block == nil {
			x.block = []byte{}
		}
		return false, nil
	}
	_, err = x.decoder.Write(x.block)
	if err = errors.Join(err, x.decoder.Close()); err != nil {
		return false, fmt.Errorf("the server's headers cannot be decoded: %w", err)
	}
	x.block = nil
	return x.ends, nil
}

// goAway returns the error for a GOAWAY frame, or nil if the server will still respond to the call.
func goAway(b []byte) error {
	if len(b) < 8 {
		return errors.New("a GOAWAY frame is too short")
	}
	last := binary.BigEndian.Uint32(b) &^ (1 << 31)
	if last >= callStream && binary.BigEndian.Uint32(b[4:]) == 0 {
		return nil
	}
	text := fmt.Sprintf("the server goes away: %s", errorCode(b[4:]))
	if debug := b[8:]; len(debug) > 0 {
		text += fmt.Sprintf(": %q", debug[:min(len(debug), 100)])
	}
	return errors.New(text)
}

// errorCodes are the names of RFC 9113, section 7.
const errorCodes = "NO_ERROR PROTOCOL_ERROR INTERNAL_ERROR FLOW_CONTROL_ERROR SETTINGS_TIMEOUT STREAM_CLOSED FRAME_SIZE_ERROR " +
	"REFUSED_STREAM CANCEL COMPRESSION_ERROR CONNECT_ERROR ENHANCE_YOUR_CALM INADEQUATE_SECURITY HTTP_1_1_REQUIRED"

func errorCode(b []byte) string {
	if len(b) < 4 {
		return "no code"
	}
	code := binary.BigEndian.Uint32(b)
	if names := strings.Fields(errorCodes); code < uint32(len(names)) {
		return names[code]
	}
	return fmt.Sprintf("code %d", code)
}
