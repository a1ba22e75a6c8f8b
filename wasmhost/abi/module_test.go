package abi_test

import (
	"bytes"
	"errors"
	"slices"
	"strings"
	"testing"

	"github.com/sonde-probe/sonde/wasmhost/abi"
)

const head = "\x00asm\x01\x00\x00\x00"

// custom returns a custom section with a short name and body.
func custom(name, body string) string {
	return "\x00" + string(rune(1+len(name)+len(body))) + string(rune(len(name))) + name + body
}

func TestSectionsAreIterated(t *testing.T) {
	module := head + custom("a", "first") + "\x01\x01\x00" + custom("", "") + "\x03\x81\x00\x00"
	var got []string
	for s, err := range abi.Sections([]byte(module)) {
		if err != nil {
			t.Fatal(err)
		}
		got = append(got, string('0'+rune(s.ID))+s.Name+":"+string(s.Body))
	}
	if want := []string{"0a:first", "1:\x00", "0:", "3:\x00"}; !slices.Equal(got, want) {
		t.Errorf("got %q, want %q", got, want)
	}
}

func TestInvalidModulesAreRejected(t *testing.T) {
	tests := map[string]struct {
		module string
		want   string
	}{
		"nothing":                     {"", "not a WebAssembly module"},
		"a text":                      {"(module)", "not a WebAssembly module"},
		"half a header":               {head[:6], "not a WebAssembly module"},
		"a component":                 {"\x00asm\x0d\x00\x01\x00", "build a core module"},
		"a section alone":             {head + "\x01", "section at byte 8: ends too early"},
		"a section too long":          {head + "\x01\x05\x00", "section at byte 8: ends too early"},
		"an endless length":           {head + "\x01\xff\xff\xff\xff\xff\x00", "section at byte 8: number has more than 32 bits"},
		"a length of 35 bits":         {head + "\x01\xff\xff\xff\xff\x7f", "section at byte 8: number has more than 32 bits"},
		"a name longer than its body": {head + "\x00\x02\x05a", "section at byte 8: name: ends too early"},
	}
	for name, test := range tests {
		t.Run(name, func(t *testing.T) {
			_, err := abi.ReadManifest([]byte(test.module))
			if err == nil || !strings.Contains(err.Error(), test.want) {
				t.Errorf("got %v, want %q", err, test.want)
			}
		})
	}
}

func TestIteratingSectionsCanStopEarly(t *testing.T) {
	for range abi.Sections([]byte(head + custom("a", "") + "\x01")) {
		return
	}
	t.Error("there was no section")
}

func TestAManifestIsWrittenAndReadBack(t *testing.T) {
	module := []byte(head + custom("name", "x") + "\x01\x01\x00")
	if _, err := abi.ReadManifest(module); !errors.Is(err, abi.ErrNoManifest) {
		t.Errorf("without a manifest: %v", err)
	}
	first, err := abi.WriteManifest(module, manifest())
	if err != nil {
		t.Fatal(err)
	}
	got, err := abi.ReadManifest(first)
	if err != nil || got.Name != "redis" || len(got.Settings) != len(manifest().Settings) {
		t.Errorf("read back: %+v, %v", got, err)
	}
	other := manifest()
	other.Version = "2"
	second, err := abi.WriteManifest(first, other)
	if err != nil {
		t.Fatal(err)
	}
	if got, err := abi.ReadManifest(second); err != nil || got.Version != "2" {
		t.Errorf("written again: %+v, %v", got, err)
	}
	if !bytes.HasPrefix(second, module) {
		t.Error("the other sections have changed")
	}
}

func TestTwoManifestsAreRejected(t *testing.T) {
	one := custom("sonde.plugin", `{"name":"a","abi":1}`)
	if _, err := abi.ReadManifest([]byte(head + one)); err != nil {
		t.Fatal(err)
	}
	if _, err := abi.ReadManifest([]byte(head + one + one)); err == nil || !strings.Contains(err.Error(), "more than one") {
		t.Errorf("got %v", err)
	}
}

func FuzzSections(f *testing.F) {
	f.Add([]byte(head + custom("a", "b") + "\x01\x01\x00"))
	f.Add([]byte(head + custom("sonde.plugin", `{"name":"a","abi":1}`)))
	f.Add([]byte(head + "\x01\xff\xff\xff\xff\x0f"))
	f.Fuzz(func(t *testing.T, module []byte) {
		left := len(module)
		for s, err := range abi.Sections(module) {
			if err != nil {
				break
			}
			if left -= 2 + len(s.Name) + len(s.Body); left < 0 {
				t.Fatal("the sections are longer than the module")
			}
		}
		out, err := abi.WriteManifest(module, abi.Manifest{Name: "x", ABI: 1})
		if err != nil {
			return
		}
		if m, err := abi.ReadManifest(out); err != nil || m.Name != "x" {
			t.Errorf("written, and read back: %+v, %v", m, err)
		}
	})
}
