package shortagetest

import (
	"bytes"
	"encoding/binary"
	"net"
	"strings"
	"testing"
)

// NameServer answers the queries that reach an address: with 127.0.0.9 for a name that
// begins with "known", never for one that begins with "silent", and otherwise that the name
// does not exist.
func NameServer(t *testing.T, address string) {
	t.Helper()
	conn, err := net.ListenPacket("udp", address+":53")
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { conn.Close() })
	go func() {
		b := make([]byte, 1500)
		for {
			n, from, err := conn.ReadFrom(b)
			if err != nil {
				return
			}
			if answer := answerTo(b[:n]); answer != nil {
				_, _ = conn.WriteTo(answer, from)
			}
		}
	}()
}

// answerTo returns the answer to a query (RFC 1035, section 4.1), or nil.
func answerTo(query []byte) []byte {
	const header, typeA, noSuchName = 12, 1, 3
	nameEnd := header + bytes.IndexByte(query[header:], 0) + 1
	question := query[header : nameEnd+4]
	first := string(question[1 : 1+question[0]])
	answer := append(query[:2:2], 0x81, 0x80, 0, 1, 0, 0, 0, 0, 0, 0) // a recursive resolver's, without records
	answer = append(answer, question...)
	switch {
	case strings.HasPrefix(first, "silent"):
		return nil
	case !strings.HasPrefix(first, "known"):
		answer[3] |= noSuchName
	case binary.BigEndian.Uint16(query[nameEnd:]) == typeA:
		answer[7] = 1
		answer = append(answer, 0xc0, header, 0, typeA, 0, 1, 0, 0, 0, 60, 0, 4, 127, 0, 0, 9)
	}
	return answer
}
