package dbus

import (
	"bufio"
	"encoding/binary"
	"errors"
	"fmt"
	"io"
)

// The kinds of messages.
const (
	kindCall   = 1
	kindReturn = 2
	kindError  = 3
	kindSignal = 4
)

// The fields of a header.
const (
	fieldPath        = 1
	fieldInterface   = 2
	fieldMember      = 3
	fieldErrorName   = 4
	fieldReplySerial = 5
	fieldDestination = 6
	fieldSignature   = 8
)

// Limits of a received message, in bytes. The properties of a service take about 30 KiB.
const (
	maxHeader = 64 << 10
	maxBody   = 1 << 20   // a longer body is skipped
	maxSkip   = 128 << 20 // the maximum of D-Bus
)

// message is a received message.
type message struct {
	kind      byte
	replyTo   uint32
	errorName string
	signature string
	order     binary.ByteOrder
	body      []byte
	isCut     bool // the body exceeded maxBody and was skipped

	Signal
}

// result returns the values of a response, or the error if it is one.
func (m message) result() ([]any, error) {
	if m.isCut {
		return nil, errTooLong
	}
	values, err := decode(m.body, m.order, m.signature)
	if m.kind != kindError {
		return values, err
	}
	e := &Error{Name: m.errorName}
	if len(values) > 0 {
		e.Text, _ = values[0].(string)
	}
	return nil, e
}

// fixedHeader is the length of the fixed part of a header, including the length of the array of fields.
const fixedHeader = 16

var errNoMessage = errors.New("not a D-Bus message")

// readMessage reads a message.
func readMessage(r *bufio.Reader) (m message, err error) {
	head := make([]byte, fixedHeader, 256)
	if _, err := io.ReadFull(r, head); err != nil {
		return m, err
	}
	switch head[0] {
	case 'l':
		m.order = binary.LittleEndian
	case 'B':
		m.order = binary.BigEndian
	default:
		return m, errNoMessage
	}
	m.kind = head[1]
	body, fields := m.order.Uint32(head[4:]), m.order.Uint32(head[12:])
	if fields > maxHeader || body > maxSkip {
		return m, fmt.Errorf("%w: header fields of %d bytes and a body of %d bytes exceed the limits", errNoMessage, fields, body)
	}
	rest := align(fixedHeader+int(fields), 8) - fixedHeader
	head = append(head, make([]byte, rest)...)
	if _, err := io.ReadFull(r, head[fixedHeader:]); err != nil {
		return m, err
	}
	if err := m.takeFields(head[:fixedHeader+int(fields)]); err != nil {
		return m, err
	}
	if body > maxBody {
		m.isCut = true
		_, err = io.CopyN(io.Discard, r, int64(body))
		return m, err
	}
	m.body = make([]byte, body)
	_, err = io.ReadFull(r, m.body)
	return m, err
}

// takeFields decodes the fields of a header.
func (m *message) takeFields(head []byte) error {
	d := decoder{bytes: head, order: m.order, at: fixedHeader - 4}
	value, _ := d.value("a(yv)", 0)
	fields, isArray := value.([]any)
	if d.err != nil || !isArray {
		return d.err
	}
	for _, f := range fields {
		pair := f.([]any)
		text, _ := pair[1].(string)
		switch pair[0] {
		case uint8(fieldPath):
			m.Path = text
		case uint8(fieldInterface):
			m.Interface = text
		case uint8(fieldMember):
			m.Member = text
		case uint8(fieldErrorName):
			m.errorName = text
		case uint8(fieldReplySerial):
			m.replyTo, _ = pair[1].(uint32)
		case uint8(fieldSignature):
			m.signature = text
		}
	}
	return nil
}

func align(n, to int) int { return (n + to - 1) / to * to }

// encode returns the message of a call.
func encode(serial uint32, call Call, args []string) []byte {
	var body []byte
	signature := make([]byte, len(args))
	for n, arg := range args {
		signature[n] = 's'
		body = appendString(body, arg)
	}
	b := []byte{'l', kindCall, 0, 1}
	b = binary.LittleEndian.AppendUint32(b, uint32(len(body)))
	b = binary.LittleEndian.AppendUint32(b, serial)
	b = append(b, 0, 0, 0, 0) // the length of the fields, set below
	for _, f := range []struct {
		code byte
		kind byte
		text string
	}{{fieldPath, 'o', call.Path}, {fieldInterface, 's', call.Interface}, {fieldMember, 's', call.Method}, {fieldDestination, 's', call.Destination}} {
		b = pad(b, 8)
		b = append(b, f.code, 1, f.kind, 0)
		b = appendString(b, f.text)
	}
	if len(args) > 0 {
		b = pad(b, 8)
		b = append(b, fieldSignature, 1, 'g', 0, byte(len(signature)))
		b = append(append(b, signature...), 0)
	}
	binary.LittleEndian.PutUint32(b[fixedHeader-4:], uint32(len(b)-fixedHeader))
	return append(pad(b, 8), body...)
}

func pad(b []byte, to int) []byte { return append(b, make([]byte, align(len(b), to)-len(b))...) }

func appendString(b []byte, s string) []byte {
	b = binary.LittleEndian.AppendUint32(pad(b, 4), uint32(len(s)))
	return append(append(b, s...), 0)
}
