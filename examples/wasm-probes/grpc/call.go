package main

import (
	"bufio"
	"bytes"
	"context"
	"errors"
	"fmt"
	"io"
	"time"

	"golang.org/x/net/http2"
	"golang.org/x/net/http2/hpack"
)

// Limits of an answer, in bytes.
const (
	maxAnswer  = 64 << 10 // of the whole
	maxFrame   = 1 << 14  // of a frame's payload, by default
	maxHeaders = 8 << 10  // of a header block, and of the fields in it
	maxMessage = 1 << 10  // of the answer's message: a valid one has 2
)

const callStream = 1

// requestHead returns the header block of a call of Check.
func requestHead(ctx context.Context, secure bool, authority string, metadata map[string]string) []byte {
	scheme := "http"
	if secure {
		scheme = "https"
	}
	var b bytes.Buffer
	e := hpack.NewEncoder(&b)
	field := func(name, value string) {
		_ = e.WriteField(hpack.HeaderField{Name: name, Value: value}) // a Buffer never fails
	}
	field(":method", "POST")
	field(":scheme", scheme)
	field(":path", "/grpc.health.v1.Health/Check")
	field(":authority", authority)
	if deadline, ok := ctx.Deadline(); ok {
		left := max(time.Until(deadline).Milliseconds(), 1)
		field("grpc-timeout", fmt.Sprint(min(left, 99999999), "m")) // at most 8 digits
	}
	field("content-type", "application/grpc")
	field("te", "trailers")
	field("user-agent", "sonde-grpc/1.0")
	for name, value := range metadata {
		field(name, value)
	}
	return b.Bytes()
}

// answer is what a call has received.
type answer struct {
	httpStatus  string
	contentType string
	grpcStatus  string // decimal; empty while the trailers are missing
	grpcMessage string
	message     []byte // with the 5 bytes before it
}

// exchange is one call.
type exchange struct {
	*http2.Framer
	answer answer
}

var (
	errTooMuch = errors.New("the server sends too many frames")
	errNotHTTP = errors.New("the server does not speak HTTP/2")
)

// call sends a request and returns the server's answer.
func call(conn io.ReadWriter, head, message []byte) (answer, error) {
	out := bufio.NewWriter(conn)
	x := &exchange{Framer: http2.NewFramer(out, bufio.NewReader(&flusher{conn, out, maxAnswer}))}
	x.SetMaxReadFrameSize(maxFrame)
	x.ReadMetaHeaders = hpack.NewDecoder(4096, nil)
	x.MaxHeaderListSize = maxHeaders
	if err := x.request(out, head, message); err != nil {
		return answer{}, err
	}
	f, err := x.next()
	settings, ok := f.(*http2.SettingsFrame)
	if errors.Is(err, http2.ErrFrameTooLarge) {
		return answer{}, fmt.Errorf("%w: %w", errNotHTTP, err)
	}
	if err == nil && (!ok || settings.IsAck()) {
		return answer{}, errNotHTTP // the first frame must be SETTINGS: RFC 9113, section 3.4
	}
	for err == nil {
		var done bool
		if done, err = x.frame(f); done || err != nil {
			break
		}
		f, err = x.next()
	}
	return x.answer, err
}

// flusher flushes the output before it reads.
type flusher struct {
	conn io.Reader
	out  *bufio.Writer
	left int // bytes that may still be read
}

func (f *flusher) Read(p []byte) (int, error) {
	if err := f.out.Flush(); err != nil {
		return 0, err
	}
	if f.left == 0 {
		return 0, errTooMuch
	}
	n, err := f.conn.Read(p[:min(len(p), f.left)])
	f.left -= n
	return n, err
}

func (x *exchange) request(out io.Writer, head, message []byte) error {
	_, err := io.WriteString(out, http2.ClientPreface)
	return errors.Join(err,
		x.WriteSettings(http2.Setting{ID: http2.SettingEnablePush, Val: 0}, http2.Setting{ID: http2.SettingMaxHeaderListSize, Val: maxHeaders}),
		x.WriteHeaders(http2.HeadersFrameParam{StreamID: callStream, BlockFragment: head, EndHeaders: true}),
		x.WriteData(callStream, true, message))
}

// next returns the next frame. A HEADERS frame comes with its CONTINUATION frames.
func (x *exchange) next() (http2.Frame, error) {
	f, err := x.ReadFrame()
	if detail := x.ErrorDetail(); err != nil && detail != nil {
		return nil, fmt.Errorf("%w: %w", err, detail)
	}
	return f, err
}

// frame handles a frame. It returns true when the answer is complete.
func (x *exchange) frame(f http2.Frame) (done bool, err error) {
	switch f := f.(type) {
	case *http2.SettingsFrame:
		if !f.IsAck() {
			return false, x.WriteSettingsAck()
		}
	case *http2.PingFrame:
		if !f.IsAck() {
			return false, x.WritePing(true, f.Data)
		}
	case *http2.GoAwayFrame:
		return false, goAway(f)
	case *http2.PushPromiseFrame:
		return false, errors.New("the server pushes, though that is turned off")
	case *http2.DataFrame, *http2.MetaHeadersFrame, *http2.RSTStreamFrame:
		if stream := f.Header().StreamID; stream != callStream {
			return false, fmt.Errorf("a frame is for stream %d, which does not exist", stream)
		}
		return x.streamFrame(f)
	}
	return false, nil // unknown frames must be ignored: RFC 9113, section 4.1
}

// streamFrame handles a frame of the call.
func (x *exchange) streamFrame(f http2.Frame) (done bool, err error) {
	switch f := f.(type) {
	case *http2.RSTStreamFrame:
		return false, fmt.Errorf("the server has reset the call: %v", f.ErrCode)
	case *http2.MetaHeadersFrame:
		if f.Truncated {
			return false, fmt.Errorf("the server sends too many headers: more than %d bytes", maxHeaders)
		}
		x.headers(f.Fields)
		return f.StreamEnded(), nil
	case *http2.DataFrame:
		if len(x.answer.message)+len(f.Data()) > 5+maxMessage {
			return false, errors.New("the answer is longer than a state of health is")
		}
		x.answer.message = append(x.answer.message, f.Data()...)
		return f.StreamEnded(), nil
	}
	return false, nil
}

// headers records header fields of the answer.
func (x *exchange) headers(fields []hpack.HeaderField) {
	for _, f := range fields {
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
}

// goAway returns the error for a GOAWAY frame, or nil when the server still answers.
func goAway(f *http2.GoAwayFrame) error {
	if f.LastStreamID >= callStream && f.ErrCode == http2.ErrCodeNo {
		return nil
	}
	text := fmt.Sprintf("the server goes away: %v", f.ErrCode)
	if debug := f.DebugData(); len(debug) > 0 {
		text += fmt.Sprintf(": %q", debug[:min(len(debug), 100)])
	}
	return errors.New(text)
}
