package dbus

import (
	"bufio"
	"bytes"
	"encoding/binary"
	"reflect"
	"strings"
	"testing"
)

func TestAnswersAreDecoded(t *testing.T) {
	t.Parallel()
	for name, c := range map[string]struct {
		signature string
		body      []byte
		want      []any
	}{
		"numbers":    {"yqnu", []byte{1, 0, 2, 0, 0xff, 0xff, 0, 0, 3, 0, 0, 0}, []any{byte(1), uint16(2), int16(-1), uint32(3)}},
		"bytes":      {"ay", []byte{2, 0, 0, 0, 8, 9}, []any{[]byte{8, 9}}},
		"struct":     {"(uo)", []byte{7, 0, 0, 0, 1, 0, 0, 0, '/', 0}, []any{[]any{uint32(7), "/"}}},
		"properties": {"a{sv}", append([]byte{22, 0, 0, 0, 0, 0, 0, 0, 2, 0, 0, 0, 'I', 'd', 0, 1, 's', 0, 0, 0}, []byte("\x05\x00\x00\x00a.b.c\x00")...), []any{map[string]any{"Id": "a.b.c"}}},
		"nothing":    {"", nil, nil},
	} {
		got, err := decode(c.body, binary.LittleEndian, c.signature)
		if err != nil || !reflect.DeepEqual(got, c.want) {
			t.Errorf("%s: %#v %v, want %#v", name, got, err, c.want)
		}
	}
	if got, err := decode([]byte{0, 0, 0, 7}, binary.BigEndian, "u"); err != nil || got[0] != uint32(7) {
		t.Errorf("big endian: %v %v", got, err)
	}
}

func TestWhatIsMalformedIsRefused(t *testing.T) {
	t.Parallel()
	for signature, body := range map[string][]byte{
		"u":                            {1, 2},
		"s":                            {0xff, 0xff, 0xff, 0xff},
		"ay":                           {9, 0, 0, 0, 1},
		"a":                            {0, 0, 0, 0},
		"()":                           {0},
		"(u":                           {1, 0, 0, 0},
		"z":                            {1},
		"v":                            {2, 'u', 'u', 0, 0, 0, 0, 0},
		"a{s}":                         {1, 0, 0, 0, 0, 0, 0, 0},
		strings.Repeat("a", 200) + "y": {0, 0, 0, 0},
		strings.Repeat("(", 200) + "y" + strings.Repeat(")", 9): {0},
	} {
		if got, err := decode(body, binary.LittleEndian, signature); err == nil {
			t.Errorf("%q: %#v", signature, got)
		}
	}
	for _, text := range []string{"", "x", "l\x01\x00\x01\xff\xff\xff\xff\x00\x00\x00\x00\xff\xff\xff\xff"} {
		if _, err := readMessage(bufio.NewReader(strings.NewReader(text))); err == nil {
			t.Errorf("%q is taken for a message", text)
		}
	}
}

func TestCallsAreMessages(t *testing.T) {
	t.Parallel()
	m, err := readMessage(bufio.NewReader(bytes.NewReader(encode(7, Call{"a.b", "/c", "d.e", "F"}, []string{"x", "longer"}))))
	values, bodyErr := m.result()
	if err != nil || bodyErr != nil || m.kind != kindCall || m.Path != "/c" || m.Interface != "d.e" || m.Member != "F" || !reflect.DeepEqual(values, []any{"x", "longer"}) {
		t.Errorf("%+v %v %v %v", m, values, err, bodyErr)
	}
}

func TestAddressesOfBuses(t *testing.T) {
	t.Parallel()
	for list, want := range map[string]string{
		"unix:path=/run/user/1000/bus":              "/run/user/1000/bus",
		"tcp:host=a,port=1;unix:guid=1,path=/a%20b": "/a b",
		"unix:abstract=/tmp/x":                      "@/tmp/x",
		"unix:runtime=yes":                          "",
		"/run/bus":                                  "",
		"":                                          "",
	} {
		if got, err := Address(list); got != want || (err == nil) != (want != "") {
			t.Errorf("%q: %q %v, want %q", list, got, err, want)
		}
	}
}

func FuzzReadMessage(f *testing.F) {
	f.Add(encode(1, Call{"a.b", "/c", "d.e", "F"}, []string{"x"}))
	f.Add([]byte("l\x02\x00\x01\x08\x00\x00\x00\x01\x00\x00\x00\x0f\x00\x00\x00\x08\x01g\x00\x05a{sv}\x00\x00\x05\x01u\x00\x00\x00\x00\x00\x00\x00\x00"))
	f.Fuzz(func(t *testing.T, text []byte) {
		r := bufio.NewReader(bytes.NewReader(text))
		for {
			m, err := readMessage(r)
			if err != nil {
				return
			}
			_, _ = m.result()
		}
	})
}
