package main

import (
	"encoding/binary"
	"testing"
)

// FuzzLook verifies that packets are tracked in the same way whether they arrive in pieces or in
// one read.
func FuzzLook(f *testing.F) {
	f.Add([]byte("\x01\x00\x00\x00x\x02\x00\x00\x01yz\x00\x00\x00\x02"), uint(1), false)
	f.Add([]byte("\x01\x00\x00\x00xHTTP"), uint(3), false)
	f.Add([]byte("\x01\x00\x00\x00x\xff\xff\xff\xff"), uint(2), true)
	f.Fuzz(func(t *testing.T, text []byte, size uint, secure bool) {
		size = size%16 + 1
		w := &wire{secure: secure}
		var wrong error
		for rest := text; len(rest) > 0 && wrong == nil && !w.blind; {
			n := min(int(size), len(rest))
			wrong, rest = w.look(rest[:n]), rest[n:]
		}
		if want := tooLarge(text, secure); (wrong != nil) != want {
			t.Errorf("%q in pieces of %d: %v, want %v", text, size, wrong, want)
		}
	})
}

// tooLarge reports whether a visible packet exceeds the maximum size.
func tooLarge(text []byte, secure bool) bool {
	for len(text) >= packetHead {
		length := int(binary.LittleEndian.Uint32(text) & 0xffffff)
		if length > maxPacket {
			return true
		}
		if secure || len(text) < packetHead+length {
			return false
		}
		text = text[packetHead+length:]
	}
	return false
}
