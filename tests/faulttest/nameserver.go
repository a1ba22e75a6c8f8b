package faulttest

import (
	"bytes"
	"encoding/binary"
	"net"
	"net/netip"
	"strings"
	"testing"
)

// NameServer answers the queries that reach an address: with 127.0.0.9 for a name that begins with "known", not at all for one that
// begins with "silent", and with "no such name" otherwise.
func NameServer(t *testing.T, address string) {
	t.Helper()
	conn, err := net.ListenPacket("udp", address+":53")
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { conn.Close() })
	go ServeNames(conn, func(name string) (ip netip.Addr, answers bool) {
		if strings.HasPrefix(name, "known") {
			ip = netip.AddrFrom4([4]byte{127, 0, 0, 9})
		}
		return ip, !strings.HasPrefix(name, "silent")
	})
}

// ServeNames answers the queries that reach conn until it is closed. For a name, without a final dot, resolve returns its IPv4
// address, or the zero Addr if the name does not exist, and whether to answer at all. There are no records of other types.
func ServeNames(conn net.PacketConn, resolve func(name string) (ip netip.Addr, answers bool)) {
	b := make([]byte, 1500)
	for {
		n, from, err := conn.ReadFrom(b)
		if err != nil {
			return
		}
		if answer := answerTo(b[:n], resolve); answer != nil {
			_, _ = conn.WriteTo(answer, from)
		}
	}
}

// answerTo returns the answer to a query (RFC 1035, section 4.1), or nil if there is none or the message is not a query.
func answerTo(query []byte, resolve func(name string) (netip.Addr, bool)) []byte {
	const header, typeA, noSuchName = 12, 1, 3
	if len(query) <= header {
		return nil
	}
	nameEnd := header + bytes.IndexByte(query[header:], 0) + 1
	if nameEnd == header || len(query) < nameEnd+4 {
		return nil
	}
	question := query[header : nameEnd+4]
	var labels []string
	for rest := question; len(rest) > 0 && rest[0] > 0; rest = rest[1+rest[0]:] {
		if int(rest[0]) >= len(rest) {
			return nil
		}
		labels = append(labels, string(rest[1:1+rest[0]]))
	}
	ip, answers := resolve(strings.Join(labels, "."))
	answer := append(query[:2:2], 0x81, 0x80, 0, 1, 0, 0, 0, 0, 0, 0) // header of a recursive resolver's answer, without records
	answer = append(answer, question...)
	switch {
	case !answers:
		return nil
	case !ip.IsValid():
		answer[3] |= noSuchName
	case binary.BigEndian.Uint16(query[nameEnd:]) == typeA:
		answer[7] = 1
		answer = append(answer, 0xc0, header, 0, typeA, 0, 1, 0, 0, 0, 60, 0, 4)
		answer = append(answer, ip.AsSlice()...)
	}
	return answer
}
