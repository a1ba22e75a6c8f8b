package main

import (
	"bufio"
	"encoding/binary"
	"errors"
	"fmt"
	"io"
	"strconv"
)

// The numbers of the binary protocol (Apache Thrift's specification,
// thrift-binary-protocol.md).
const (
	version     = 0x80010000
	versionMask = 0xffff0000

	messageCall      = 1
	messageReply     = 2
	messageException = 3
)

// The types of values.
const (
	typeStop   = 0
	typeBool   = 2
	typeByte   = 3
	typeDouble = 4
	typeI16    = 6
	typeI32    = 8
	typeI64    = 10
	typeString = 11
	typeStruct = 12
	typeMap    = 13
	typeSet    = 14
	typeList   = 15
	typeUUID   = 16
)

// Limits of an answer.
const (
	maxMessage = 64 << 10 // bytes of the whole
	maxText    = 4 << 10  // bytes of a string; the rest is dropped
	maxDepth   = 16       // of nested values
)

// request returns the call as bytes.
func (s *settings) request(sequence uint32) []byte {
	name := s.Method
	if s.Service != "" {
		name = s.Service + ":" + s.Method
	}
	b := binary.BigEndian.AppendUint32(nil, version|messageCall)
	b = binary.BigEndian.AppendUint32(b, uint32(len(name)))
	b = append(b, name...)
	b = binary.BigEndian.AppendUint32(b, sequence)
	b = append(b, typeStop) // no arguments
	if s.Transport == "unframed" {
		return b
	}
	return append(binary.BigEndian.AppendUint32(nil, uint32(len(b))), b...)
}

// reply is the server's reply.
type reply struct {
	failed bool   // with an exception of the framework
	code   int32  // of that exception
	text   string // of that exception

	returned bool   // the method has returned a value
	value    string // the value, if it is a string, a whole number or a bool
	declared int16  // the number of the declared exception that it has thrown, or 0
}

// headError is the error of an answer with an invalid header.
type headError struct{ problem string }

func (e *headError) Error() string { return e.problem }

// read reads the answer to a call.
func (s *settings) read(in *bufio.Reader, sequence uint32) (reply, error) {
	head, err := in.Peek(8) // the shortest answer is longer
	if err != nil {
		return reply{}, err
	}
	head = append([]byte{}, head...)
	most := int64(maxMessage)
	if s.Transport == "framed" {
		if most, err = frame(in); err != nil {
			return reply{}, s.hint(err, head)
		}
	}
	d := &decoder{in: in, left: most}
	r, err := d.message(s, sequence)
	return r, s.hint(errors.Join(err, d.err), head)
}

// frame reads the length of a frame.
func frame(in io.Reader) (int64, error) {
	var b [4]byte
	if _, err := io.ReadFull(in, b[:]); err != nil {
		return 0, err
	}
	n := int32(binary.BigEndian.Uint32(b[:]))
	if n < 0 || n > maxMessage {
		return 0, &headError{fmt.Sprintf("the answer is no frame of at most %d bytes", maxMessage)}
	}
	return int64(n), nil
}

// decoder reads values. After an error it returns zero values.
type decoder struct {
	in   io.Reader
	left int64 // bytes that may still be read
	err  error
}

// bytes returns the next n bytes.
func (d *decoder) bytes(n int64) []byte {
	if d.err == nil && (n < 0 || n > d.left) {
		d.err = errors.New("the answer is longer than it says, or than is allowed")
	}
	if d.err != nil {
		return nil
	}
	d.left -= n
	b := make([]byte, n)
	_, d.err = io.ReadFull(d.in, b)
	return b
}

// number returns the next n bytes as a signed number.
func (d *decoder) number(n int64) int64 {
	var v int64
	for i, c := range d.bytes(n) {
		if i == 0 {
			v = int64(int8(c))
			continue
		}
		v = v<<8 | int64(c)
	}
	return v
}

// text returns the next string, truncated to maxText.
func (d *decoder) text() string {
	b := d.bytes(d.number(4))
	return string(b[:min(len(b), maxText)])
}

// message reads a message.
func (d *decoder) message(s *settings, sequence uint32) (reply, error) {
	word := uint32(d.number(4))
	if d.err != nil {
		return reply{}, nil
	}
	if word&versionMask != version {
		return reply{}, &headError{fmt.Sprintf("the answer begins with %08x, which is not Thrift's binary protocol", word)}
	}
	name, number := d.text(), uint32(d.number(4))
	switch {
	case d.err != nil:
		return reply{}, nil
	case number != sequence || name != s.Method && name != s.Service+":"+s.Method:
		return reply{}, fmt.Errorf("the answer is to call %d of %.100q, the call was %d of %q", number, name, sequence, s.Method)
	}
	switch word & 0xff {
	case messageReply:
		return d.result(), nil
	case messageException:
		return d.exception(), nil
	}
	return reply{}, fmt.Errorf("the answer is a message of the type %d", word&0xff)
}

// result reads the result of a method: field 0 is the value, others declared exceptions.
func (d *decoder) result() reply {
	var r reply
	d.fields(func(kind byte, id int16) bool {
		if id != 0 {
			r.declared = id
			return false
		}
		r.returned = true
		var simple bool
		r.value, simple = d.simple(kind)
		return simple
	})
	return r
}

// exception reads a TApplicationException.
func (d *decoder) exception() reply {
	r := reply{failed: true}
	d.fields(func(kind byte, id int16) bool {
		switch {
		case id == 1 && kind == typeString:
			r.text = d.text()
		case id == 2 && kind == typeI32:
			r.code = int32(d.number(4))
		default:
			return false
		}
		return true
	})
	return r
}

// fields calls take for each field of a struct, and skips the field if take returns false.
func (d *decoder) fields(take func(kind byte, id int16) bool) {
	for d.err == nil {
		kind := byte(d.number(1))
		if kind == typeStop {
			return
		}
		if id := int16(d.number(2)); !take(kind, id) {
			d.skip(kind, 0)
		}
	}
}

// simple reads a value that can be compared with a string.
func (d *decoder) simple(kind byte) (value string, ok bool) {
	switch kind {
	case typeBool:
		return strconv.FormatBool(d.number(1) != 0), true
	case typeByte, typeI16, typeI32, typeI64:
		return strconv.FormatInt(d.number(size(kind)), 10), true
	case typeString:
		return d.text(), true
	}
	return "", false
}

// size returns the size of a type with values of a fixed size, or 0.
func size(kind byte) int64 {
	switch kind {
	case typeBool, typeByte:
		return 1
	case typeI16:
		return 2
	case typeI32:
		return 4
	case typeI64, typeDouble:
		return 8
	case typeUUID:
		return 16
	}
	return 0
}

// skip skips a value.
func (d *decoder) skip(kind byte, depth int) {
	if depth > maxDepth && d.err == nil {
		d.err = fmt.Errorf("the answer has values in values more than %d deep", maxDepth)
	}
	if d.err != nil {
		return
	}
	switch kind {
	case typeString:
		d.bytes(d.number(4))
	case typeStruct:
		d.fields(func(kind byte, _ int16) bool { d.skip(kind, depth+1); return true })
	case typeMap:
		key, value := byte(d.number(1)), byte(d.number(1))
		d.elements(depth, key, value)
	case typeSet, typeList:
		d.elements(depth, byte(d.number(1)))
	default:
		n := size(kind)
		if n == 0 {
			d.err = fmt.Errorf("the answer has a value of the type %d, which does not exist", kind)
		}
		d.bytes(n)
	}
}

// elements skips the elements of a map, a set or a list. Each has at least one byte, which
// bounds their number.
func (d *decoder) elements(depth int, kinds ...byte) {
	for n := d.number(4); n > 0 && d.err == nil; n-- {
		for _, kind := range kinds {
			d.skip(kind, depth+1)
		}
	}
}

// unknownMethod is the code of a TApplicationException.
const unknownMethod = 1

// exceptionName returns the name of the code of a TApplicationException.
func exceptionName(code int32) string {
	names := []string{
		"unknown", "unknown method", "invalid message type", "wrong method name", "bad sequence id", "missing result",
		"internal error", "protocol error", "invalid transform", "invalid protocol", "unsupported client type",
	}
	if code >= 0 && int(code) < len(names) {
		return names[code]
	}
	return fmt.Sprintf("exception %d", code)
}
