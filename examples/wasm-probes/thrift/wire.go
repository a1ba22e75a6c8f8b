package main

import (
	"bufio"
	"context"
	"encoding/binary"
	"errors"
	"fmt"
	"io"
	"strconv"
	"strings"

	"github.com/apache/thrift/lib/go/thrift"
)

// Limits of a reply.
const (
	maxMessage = 64 << 10 // bytes of the whole message
	maxText    = 4 << 10  // bytes of a string; the rest is dropped
	maxDepth   = 16       // of nested values
)

// request sends the call.
func (s *settings) request(ctx context.Context, to io.Writer, sequence int32) error {
	name := s.Method
	if s.Service != "" {
		name = s.Service + ":" + s.Method
	}
	var out thrift.TTransport = thrift.NewStreamTransportW(to)
	if s.Transport == "framed" {
		out = thrift.NewTFramedTransportConf(out, nil)
	}
	p := thrift.NewTBinaryProtocolConf(out, nil)
	return errors.Join(p.WriteMessageBegin(ctx, name, thrift.CALL, sequence), p.WriteFieldStop(ctx), p.Flush(ctx))
}

// reply is the server's reply.
type reply struct {
	failed bool   // the framework returned an exception
	code   int32  // of that exception
	text   string // of that exception

	returned bool   // the method returned a value
	value    string // the value, if it is a string, a whole number or a bool
	declared int16  // number of the declared exception that the method threw, or 0
}

// read reads the reply to a call.
func (s *settings) read(in *bufio.Reader, sequence int32) (reply, error) {
	head, err := in.Peek(8) // the shortest reply is longer
	if err != nil {
		return reply{}, err
	}
	if err := s.begins(string(head)); err != nil {
		return reply{}, err
	}
	most := &io.LimitedReader{R: in, N: maxMessage}
	if s.Transport == "framed" {
		most.N = int64(binary.BigEndian.Uint32(head))
		_, _ = in.Discard(4) // the length, which was peeked
	}
	p := thrift.NewTBinaryProtocolConf(thrift.NewStreamTransportR(most), &thrift.TConfiguration{MaxMessageSize: maxMessage})
	r, err := s.message(p, sequence)
	if most.N == 0 && (errors.Is(err, io.EOF) || errors.Is(err, io.ErrUnexpectedEOF)) {
		err = errors.New("the answer is longer than it says, or than is allowed")
	}
	return r, err
}

// version is the start of each message in the binary protocol.
const version = "\x80\x01"

// begins checks the first 8 bytes of a reply. The error names the likely cause.
func (s *settings) begins(head string) error {
	framed, problem := s.Transport == "framed", ""
	switch message := head[4:]; {
	case framed && binary.BigEndian.Uint32([]byte(head)) > maxMessage:
		problem = fmt.Sprintf("the response is not a frame of at most %d bytes", maxMessage)
	case framed && !strings.HasPrefix(message, version):
		problem = fmt.Sprintf("the answer begins with %x, which is not Thrift's binary protocol", message)
	case !framed && !strings.HasPrefix(head, version):
		problem = fmt.Sprintf("the answer begins with %x, which is not Thrift's binary protocol", head[:4])
	default:
		return nil
	}
	switch {
	case strings.HasPrefix(head, "HTTP/"):
		problem += ": it speaks HTTP"
	case framed && strings.HasPrefix(head, version+"\x00"):
		problem += ": it answers unframed"
	case !framed && strings.HasPrefix(head[4:], version):
		problem += ": it answers framed"
	}
	return errors.New(problem)
}

// message reads a message. The deadline is set on the connection and not in the context: with a
// context deadline, the library would read again after a timeout.
func (s *settings) message(p thrift.TProtocol, sequence int32) (reply, error) {
	ctx := context.Background()
	name, kind, number, err := p.ReadMessageBegin(ctx)
	switch {
	case err != nil:
		return reply{}, unreadable(err)
	case number != sequence || name != s.Method && name != s.Service+":"+s.Method:
		return reply{}, fmt.Errorf("the answer is to call %d of %.100q, the call was %d of %q", uint32(number), name, sequence, s.Method)
	case kind == thrift.REPLY:
		r, err := result(ctx, p)
		return r, unreadable(err)
	case kind == thrift.EXCEPTION:
		x := thrift.NewTApplicationException(thrift.UNKNOWN_APPLICATION_EXCEPTION, "")
		err := x.Read(ctx, p)
		return reply{failed: true, code: x.TypeId(), text: bounded(x.Error())}, unreadable(err)
	}
	return reply{}, fmt.Errorf("the answer is a message of the type %d", kind)
}

func unreadable(err error) error {
	if err == nil {
		return nil
	}
	return fmt.Errorf("the answer cannot be read: %w", err)
}

// result reads the result of a method: field 0 is the value, other fields are declared exceptions.
func result(ctx context.Context, p thrift.TProtocol) (r reply, err error) {
	for {
		_, kind, id, err := p.ReadFieldBegin(ctx)
		if err != nil || kind == thrift.STOP {
			return r, err
		}
		if id != 0 {
			r.declared = id
			err = thrift.Skip(ctx, p, kind, maxDepth)
		} else {
			r.returned = true
			r.value, err = value(ctx, p, kind)
		}
		if err != nil {
			return r, err
		}
	}
}

// value reads a value. It returns text if the value can be compared with a string, or else "".
func value(ctx context.Context, p thrift.TProtocol, kind thrift.TType) (text string, err error) {
	switch kind {
	case thrift.BOOL:
		v, err := p.ReadBool(ctx)
		return strconv.FormatBool(v), err
	case thrift.BYTE:
		v, err := p.ReadByte(ctx)
		return fmt.Sprint(v), err
	case thrift.I16:
		v, err := p.ReadI16(ctx)
		return fmt.Sprint(v), err
	case thrift.I32:
		v, err := p.ReadI32(ctx)
		return fmt.Sprint(v), err
	case thrift.I64:
		v, err := p.ReadI64(ctx)
		return fmt.Sprint(v), err
	case thrift.STRING:
		v, err := p.ReadString(ctx)
		return bounded(v), err
	}
	return "", thrift.Skip(ctx, p, kind, maxDepth)
}

// bounded returns a text, truncated to maxText.
func bounded(text string) string { return text[:min(len(text), maxText)] }
