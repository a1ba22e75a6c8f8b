package icmpprobe

import (
	"bytes"
	"encoding/binary"
	"fmt"

	"github.com/sonde-probe/sonde/internal/dial"
	"github.com/sonde-probe/sonde/probe"
)

// Types of ICMP messages (RFC 792; RFC 4443, section 2.1).
const (
	typeRequest4     = 8
	typeReply4       = 0
	typeUnreachable4 = 3
	typeExceeded4    = 11

	typeRequest6     = 128
	typeReply6       = 129
	typeUnreachable6 = 1
	typeTooBig6      = 2
	typeExceeded6    = 3
)

// codeTooBig4 is the code of typeUnreachable4 for a packet that must not be fragmented.
const codeTooBig4 = 4

const headerSize = 8 // of an echo request: type, code, checksum, identifier and sequence number

// echo is an echo request; its reply repeats all fields.
type echo struct {
	v6      bool
	id, seq uint16
	payload []byte
}

// packet returns the request in wire format. With IPv6, the kernel adds the checksum, since it also covers the addresses.
func (e *echo) packet() []byte {
	b := make([]byte, headerSize, headerSize+len(e.payload))
	b[0] = e.requestType()
	binary.BigEndian.PutUint16(b[4:], e.id)
	binary.BigEndian.PutUint16(b[6:], e.seq)
	b = append(b, e.payload...)
	if !e.v6 {
		binary.BigEndian.PutUint16(b[2:], checksum(b))
	}
	return b
}

func (e *echo) requestType() byte {
	if e.v6 {
		return typeRequest6
	}
	return typeRequest4
}

// isReply reports whether a message is the reply to the request. Its checksum need not be verified, since the payload is compared.
func (e *echo) isReply(message []byte) bool {
	kind := byte(typeReply4)
	if e.v6 {
		kind = typeReply6
	}
	return e.hasNumbers(message, kind) && bytes.Equal(message[headerSize:], e.payload)
}

// isQuoted reports whether an ICMP error quotes the request: at least its header, and no payload bytes that differ.
func (e *echo) isQuoted(quoted []byte) bool {
	return e.hasNumbers(quoted, e.requestType()) && bytes.HasPrefix(e.payload, quoted[headerSize:min(len(quoted), headerSize+len(e.payload))])
}

func (e *echo) hasNumbers(b []byte, kind byte) bool {
	return len(b) >= headerSize && b[0] == kind && b[1] == 0 &&
		binary.BigEndian.Uint16(b[4:]) == e.id && binary.BigEndian.Uint16(b[6:]) == e.seq
}

// checksum returns the checksum of a message whose checksum field is zero (RFC 1071).
func checksum(b []byte) uint16 {
	sum := uint32(0)
	for ; len(b) >= 2; b = b[2:] {
		sum += uint32(binary.BigEndian.Uint16(b))
	}
	if len(b) == 1 {
		sum += uint32(b[0]) << 8
	}
	for sum > 0xffff {
		sum = sum>>16 + sum&0xffff
	}
	return ^uint16(sum)
}

// withoutHeader returns the payload of an IPv4 packet, or nil if its header is incomplete. Raw sockets for IPv4 receive whole
// packets.
func withoutHeader(packet []byte) []byte {
	if len(packet) < 20 || packet[0]>>4 != 4 {
		return nil
	}
	size := int(packet[0]&0xf) * 4
	if size < 20 || len(packet) < size {
		return nil
	}
	return packet[size:]
}

// remoteError is an ICMP error about a request, from a host on the path or from this one.
type remoteError struct {
	v6   bool
	kind byte
	code byte
	from string // the host that sent it; "" if unknown
}

// classified returns the error as a *dial.Error with its reason.
func (r remoteError) classified() *dial.Error {
	text, why := r.describe()
	if r.from != "" {
		text = r.from + " says: " + text
	}
	return &dial.Error{Outcome: probe.Failure, Reason: why, Err: fmt.Errorf("%s", text)}
}

// unreachable4 and unreachable6 describe the codes of "destination unreachable" (RFC 792,
// RFC 1812, section 5.2.7.1; RFC 4443, section 3.1).
var (
	unreachable4 = map[byte]string{0: "network unreachable", 1: "host unreachable", 2: "protocol unreachable", 3: "port unreachable", 9: "network prohibited", 10: "host prohibited", 13: "communication prohibited"}
	unreachable6 = map[byte]string{0: "no route to the host", 1: "communication prohibited", 2: "beyond the scope of the source address", 3: "address unreachable", 4: "port unreachable", 5: "source address prohibited", 6: "route rejected"}
)

func (r remoteError) describe() (string, probe.Reason) {
	unreachable, exceeded, codes := byte(typeUnreachable4), byte(typeExceeded4), unreachable4
	if r.v6 {
		unreachable, exceeded, codes = typeUnreachable6, typeExceeded6, unreachable6
	}
	switch {
	case r.isTooBig():
		return "the request is too big for a network on the way", probe.ReasonICMPTooBig
	case r.kind == unreachable && codes[r.code] != "":
		return codes[r.code], probe.ReasonICMPUnreachable
	case r.kind == unreachable:
		return fmt.Sprintf("unreachable, with the code %d", r.code), probe.ReasonICMPUnreachable
	case r.kind == exceeded && r.code == 0:
		return "the TTL of the request is exceeded", probe.ReasonICMPTTLExceeded
	case r.kind == exceeded:
		return "a fragment of the request was lost", probe.ReasonICMPFailed
	}
	return fmt.Sprintf("ICMP error of type %d with the code %d", r.kind, r.code), probe.ReasonICMPFailed
}

// isTooBig reports whether the request does not fit through a network on the way.
func (r remoteError) isTooBig() bool {
	if r.v6 {
		return r.kind == typeTooBig6
	}
	return r.kind == typeUnreachable4 && r.code == codeTooBig4
}
