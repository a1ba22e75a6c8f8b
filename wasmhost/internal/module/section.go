package module

import (
	"errors"
	"fmt"
	"unicode/utf8"

	"github.com/sonde-probe/sonde/wasmhost/abi"
)

// The ids of sections.
const (
	sectionType      = 1
	sectionImport    = 2
	sectionFunction  = 3
	sectionTable     = 4
	sectionMemory    = 5
	sectionGlobal    = 6
	sectionExport    = 7
	sectionStart     = 8
	sectionElement   = 9
	sectionCode      = 10
	sectionData      = 11
	sectionDataCount = 12
)

// The kinds of imports and exports.
const (
	kindFunction = 0
	kindTable    = 1
	kindMemory   = 2
	kindGlobal   = 3
)

// Bounds on the entries of sections. A Go plugin of 20 MB has 12,000 functions of 20 types;
// compilers write one table and one memory.
const (
	maxTypes     = 1 << 16
	maxImports   = 1 << 12
	maxFunctions = 1 << 18
	maxTables    = 4
	maxMemories  = 16
	maxExports   = 1 << 12
)

// order lists the sections of a module in their required order. Custom sections may occur anywhere.
var order = [...]byte{
	sectionType, sectionImport, sectionFunction, sectionTable, sectionMemory, sectionGlobal,
	sectionExport, sectionStart, sectionElement, sectionDataCount, sectionCode, sectionData,
}

// bodies has the bodies of a module's sections by id; nil for absent sections. They alias the module's bytes.
type bodies [sectionDataCount + 1][]byte

// split returns the sections of a module, except custom ones.
func split(wasm []byte) (all bodies, err error) {
	next := 0
	for s, err := range abi.Sections(wasm) {
		switch {
		case err != nil:
			return all, err
		case s.ID == abi.SectionCustom && !utf8.ValidString(s.Name):
			return all, errors.New("name of a custom section is not UTF-8")
		case s.ID == abi.SectionCustom:
			continue
		case int(s.ID) < len(all) && all[s.ID] != nil:
			return all, fmt.Errorf("section %d occurs twice", s.ID)
		}
		for next < len(order) && order[next] != s.ID {
			next++
		}
		if next == len(order) {
			return all, fmt.Errorf("section %d is unknown, beyond WebAssembly 2.0, or out of order", s.ID)
		}
		all[s.ID] = s.Body
	}
	return all, nil
}

// module returns the sections as a module. size is the size of the original module.
func (b *bodies) module(size int) []byte {
	out := append(make([]byte, 0, size+size/4), "\x00asm\x01\x00\x00\x00"...)
	for _, id := range order {
		if b[id] != nil {
			out = appendSection(out, id, b[id])
		}
	}
	return out
}

// appendUint32 appends a number in unsigned LEB128.
func appendUint32(out []byte, n uint32) []byte { return abi.AppendUint32(out, n) }

// appendSection appends a section.
func appendSection(out []byte, id byte, body []byte) []byte {
	return append(appendUint32(append(out, id), uint32(len(body))), body...)
}

// appendName appends a name.
func appendName(out []byte, name string) []byte {
	return append(appendUint32(out, uint32(len(name))), name...)
}
