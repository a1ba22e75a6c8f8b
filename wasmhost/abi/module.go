package abi

import (
	"bytes"
	"encoding/binary"
	"encoding/json"
	"errors"
	"fmt"
	"iter"
	"math"
)

// Section is one section of a module.
type Section struct {
	ID   byte
	Name string // of a custom section
	Body []byte // without the name; aliases the module's bytes
}

// SectionCustom is the ID of custom sections.
const SectionCustom = 0

const header = "\x00asm\x01\x00\x00\x00"

// componentVersion replaces the version in the header of a component (the component model's binary
// format: version 13, layer 1).
const componentVersion = "\x0d\x00\x01\x00"

// The errors of a file that is not a core module.
var (
	errNotWasm   = errors.New("not a WebAssembly module")
	errComponent = errors.New("WebAssembly components are not supported: build a core module for wasip1 or wasm32-unknown-unknown")
)

// ErrNoManifest means that a module has no section sonde.plugin.
var ErrNoManifest = errors.New("no section " + manifestSection)

// Sections iterates over the sections of a module in order. It reads section headers only and stops
// after the first error.
func Sections(module []byte) iter.Seq2[Section, error] {
	return func(yield func(Section, error) bool) {
		switch {
		case bytes.HasPrefix(module, []byte(header[:4]+componentVersion)):
			yield(Section{}, errComponent)
			return
		case !bytes.HasPrefix(module, []byte(header)):
			yield(Section{}, errNotWasm)
			return
		}
		for rest := module[len(header):]; len(rest) > 0; {
			s, after, err := nextSection(rest)
			if err != nil {
				yield(Section{}, fmt.Errorf("section at byte %d: %w", len(module)-len(rest), err))
				return
			}
			if !yield(s, nil) {
				return
			}
			rest = after
		}
	}
}

func nextSection(b []byte) (s Section, rest []byte, err error) {
	s.ID = b[0]
	body, rest, err := readBytes(b[1:])
	if err != nil {
		return s, nil, err
	}
	s.Body = body
	if s.ID != SectionCustom {
		return s, rest, nil
	}
	name, body, err := readBytes(body)
	if err != nil {
		return s, nil, fmt.Errorf("name: %w", err)
	}
	s.Name, s.Body = string(name), body
	return s, rest, nil
}

var errShort = errors.New("ends too early")

// Uint32 decodes an unsigned LEB128 number, as in the binary format of WebAssembly modules,
// at the start of b. It returns the number and the bytes after it.
func Uint32(b []byte) (n uint32, rest []byte, err error) {
	const most = 5 // bytes
	v, size := binary.Uvarint(b[:min(len(b), most)])
	switch {
	case size == 0 && len(b) < most:
		return 0, nil, errShort
	case size == 0 || v > math.MaxUint32:
		return 0, nil, errors.New("number has more than 32 bits")
	}
	return uint32(v), b[size:], nil
}

// readBytes reads a length and as many bytes. It returns these bytes and the rest; both alias b.
func readBytes(b []byte) (body, rest []byte, err error) {
	n, rest, err := Uint32(b)
	if err != nil {
		return nil, nil, err
	}
	if uint64(n) > uint64(len(rest)) {
		return nil, nil, errShort
	}
	return rest[:n], rest[n:], nil
}

// ReadManifest parses and validates the manifest of a module, without running the module. The error
// is ErrNoManifest if there is no manifest; more than one manifest is an error as well.
func ReadManifest(module []byte) (Manifest, error) {
	var found []byte
	for s, err := range Sections(module) {
		if err != nil {
			return Manifest{}, err
		}
		if s.ID != SectionCustom || s.Name != manifestSection {
			continue
		}
		if found != nil {
			return Manifest{}, errors.New("more than one section " + manifestSection)
		}
		found = append([]byte{}, s.Body...)
	}
	if found == nil {
		return Manifest{}, ErrNoManifest
	}
	return ParseManifest(found)
}

// WriteManifest returns a copy of a module in which m replaces any existing manifest. It validates
// m first.
func WriteManifest(module []byte, m Manifest) ([]byte, error) {
	if err := m.Check(); err != nil {
		return nil, err
	}
	text, err := json.Marshal(m)
	switch {
	case err != nil:
		return nil, err
	case len(text) > MaxManifest:
		return nil, fmt.Errorf("manifest is %d bytes long, at most %d are allowed", len(text), MaxManifest)
	}
	out := make([]byte, 0, len(module)+len(text)+len(manifestSection)+16)
	out = append(out, header...)
	for s, err := range Sections(module) {
		if err != nil {
			return nil, err
		}
		if s.ID != SectionCustom || s.Name != manifestSection {
			out = appendSection(out, s)
		}
	}
	return appendSection(out, Section{Name: manifestSection, Body: text}), nil
}

func appendSection(b []byte, s Section) []byte {
	b = append(b, s.ID)
	if s.ID != SectionCustom {
		return append(AppendUint32(b, uint32(len(s.Body))), s.Body...)
	}
	name := append(AppendUint32(nil, uint32(len(s.Name))), s.Name...)
	b = AppendUint32(b, uint32(len(name)+len(s.Body)))
	return append(append(b, name...), s.Body...)
}

// AppendUint32 appends a number in LEB128.
func AppendUint32(b []byte, n uint32) []byte { return binary.AppendUvarint(b, uint64(n)) }
