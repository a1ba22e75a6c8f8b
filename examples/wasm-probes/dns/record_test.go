package main

import (
	"strings"
	"testing"

	"golang.org/x/net/dns/dnsmessage"
)

func TestAnInternationalNameIsAskedForInASCII(t *testing.T) {
	for name, want := range map[string]string{"bücher.example": "xn--bcher-kva.example.", "BÜCHER.example.": "xn--bcher-kva.example.", "_dmarc.bücher.example": "_dmarc.xn--bcher-kva.example."} {
		s := settings{Name: name, Type: "A", Rcode: "NOERROR", Network: "udp"}
		if err := s.Prepare(); err != nil || s.question.Name.String() != want {
			t.Errorf("%s: got %v, %v", name, s.question.Name, err)
		}
	}
	s := settings{Name: "a\u202eb", Type: "A", Rcode: "NOERROR", Network: "udp"}
	if err := s.Prepare(); err == nil {
		t.Error("a name that can be none is accepted")
	}
}

// A server controls all bytes of a record, including lengths that exceed its data.
func TestARecordWithAnyLengthIsFormattedOrMalformed(t *testing.T) {
	long := strings.Repeat("a", 255)
	for _, c := range []struct {
		kind dnsmessage.Type
		data string
		want string // "" for malformed
	}{
		{dnsmessage.TypeHINFO, "\xff" + long + "\xfe" + long[1:], `"` + long + `" "` + long[1:] + `"`},
		{dnsmessage.TypeHINFO, "\x00\x00", `"" ""`},
		{dnsmessage.TypeHINFO, "\xff" + long, ""},
		{dnsmessage.TypeHINFO, "\xff" + long[1:], ""},
		{257, "\x00\xff" + long + "ca", "0 " + long + ` "ca"`},
		{257, "\x00\xff" + long[1:], ""},
		{257, "\x00\x00ca", ""},
		{257, "\x00", ""},
		{43, "\x00\x07\x0d", ""},
		{10, "\xff", `\# 1 ff`},
	} {
		got, err := unparsed(&dnsmessage.UnknownResource{Type: c.kind, Data: []byte(c.data)})
		if got != c.want || (err != nil) != (c.want == "") {
			t.Errorf("%v %.9q: got %q, %v", c.kind, c.data, got, err)
		}
	}
	for data, want := range map[string]string{"\xff" + long: long, "\xff" + long[1:]: "", "\x00": "", "\x02h2\x02h3": "h2,h3"} {
		if got, ok := protocols([]byte(data)); got != want || ok != (want != "") {
			t.Errorf("alpn %.9q: got %q, %v", data, got, ok)
		}
	}
}
