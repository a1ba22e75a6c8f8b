package icmpprobe

import (
	"bytes"
	"strings"
	"testing"

	"github.com/sonde-probe/sonde/probe"
)

func TestOnlyTheReplyToARequestIsOne(t *testing.T) {
	for _, v6 := range []bool{false, true} {
		e := echo{v6: v6, id: 0x1234, seq: 0x5678, payload: []byte("0123456789abcdef")}
		reply := e.packet()
		if reply[0] = typeReply4; v6 {
			reply[0] = typeReply6
		}
		if !e.isReply(reply) {
			t.Fatalf("v6 %t: the reply % x is none", v6, reply)
		}
		for i := range reply {
			if i == 2 || i == 3 {
				continue // the checksum
			}
			forged := bytes.Clone(reply)
			if forged[i] ^= 1; e.isReply(forged) {
				t.Errorf("v6 %t: with another byte %d it is a reply", v6, i)
			}
			if e.isReply(reply[:i]) {
				t.Errorf("v6 %t: %d bytes of it are a reply", v6, i)
			}
		}
		if e.isReply(append(reply, 0)) || e.isReply(e.packet()) {
			t.Errorf("v6 %t: a longer one, or the request, is a reply", v6)
		}
	}
}

// The checksum of a message that contains its own checksum is 0 (RFC 1071).
func TestChecksum(t *testing.T) {
	for _, size := range []int{0, 1, 2, 55, 56, 65_507} {
		e := echo{id: 0xffff, seq: 0xfffe, payload: bytes.Repeat([]byte{0xff}, size)}
		if got := checksum(e.packet()); got != 0 {
			t.Errorf("%d bytes: got %#x", size, got)
		}
	}
	if got := checksum([]byte{0x00, 0x01, 0xf2, 0x03, 0xf4, 0xf5, 0xf6, 0xf7}); got != ^uint16(0xddf2) {
		t.Errorf("the example of RFC 1071: got %#x", got)
	}
}

func TestICMPErrorsHaveReasons(t *testing.T) {
	for _, c := range []struct {
		from remoteError
		why  probe.Reason
		text string
	}{
		{remoteError{kind: 3, code: 1, from: "10.0.0.1"}, probe.ReasonICMPUnreachable, "10.0.0.1 says: host unreachable"},
		{remoteError{kind: 3, code: 200}, probe.ReasonICMPUnreachable, "code 200"},
		{remoteError{kind: 3, code: 4}, probe.ReasonICMPTooBig, "too big"},
		{remoteError{kind: 11}, probe.ReasonICMPTTLExceeded, "TTL"},
		{remoteError{kind: 11, code: 1}, probe.ReasonICMPFailed, "fragment"},
		{remoteError{kind: 12}, probe.ReasonICMPFailed, "type 12"},
		{remoteError{v6: true, kind: 1}, probe.ReasonICMPUnreachable, "no route"},
		{remoteError{v6: true, kind: 2}, probe.ReasonICMPTooBig, "too big"},
		{remoteError{v6: true, kind: 3}, probe.ReasonICMPTTLExceeded, "TTL"},
		{remoteError{v6: true, kind: 4, code: 1}, probe.ReasonICMPFailed, "type 4"},
	} {
		got := c.from.classified()
		if got.Outcome != probe.Failure || got.Reason != c.why || !strings.Contains(got.Error(), c.text) {
			t.Errorf("%+v: got %v %v, want %v %q", c.from, got.Reason, got, c.why, c.text)
		}
	}
}

// FuzzReply passes arbitrary packets: only the reply is accepted, and none causes a panic.
func FuzzReply(f *testing.F) {
	e := echo{id: 0x1234, seq: 0x5678, payload: []byte("0123456789abcdef")}
	header := append([]byte{0x45}, make([]byte, 19)...)
	reply := e.packet()
	reply[0] = typeReply4
	f.Add(append(bytes.Clone(header), reply...), false)
	f.Add(append(append([]byte{0x46}, make([]byte, 23)...), reply...), false)
	f.Add([]byte{0x4f, 0}, false)
	f.Add([]byte{0x60}, true)
	f.Fuzz(func(t *testing.T, packet []byte, v6 bool) {
		e := e
		e.v6 = v6
		for _, message := range [][]byte{packet, withoutHeader(packet)} {
			if e.isReply(message) && (len(message) != headerSize+len(e.payload) || !bytes.HasSuffix(message, e.payload)) {
				t.Errorf("% x is a reply", message)
			}
			if e.isQuoted(message) && len(message) < headerSize {
				t.Errorf("% x quotes the request", message)
			}
		}
	})
}
