package binary

import (
	"errors"
	"fmt"
	"unicode/utf8"

	"github.com/sonde-probe/sonde/wasmhost/abi"
)

// The ids of sections.
const (
	SectionType      = 1
	SectionImport    = 2
	SectionFunction  = 3
	SectionTable     = 4
	SectionMemory    = 5
	SectionGlobal    = 6
	SectionExport    = 7
	SectionStart     = 8
	SectionElement   = 9
	SectionCode      = 10
	SectionData      = 11
	SectionDataCount = 12
)

// The kinds of imports and exports.
const (
	KindFunction = 0
	kindTable    = 1
	KindMemory   = 2
	KindGlobal   = 3
)

// Bounds on the entries of sections. A Go plugin of 20 MB has 12,000 functions of 20
// types; compilers make one table and one memory.
const (
	MaxTypes     = 1 << 16
	MaxImports   = 1 << 12
	MaxFunctions = 1 << 18
	MaxTables    = 4
	MaxMemories  = 16
	MaxExports   = 1 << 12
)

// Order lists the sections of a module in their order. Custom ones may be anywhere.
var Order = [...]byte{
	SectionType, SectionImport, SectionFunction, SectionTable, SectionMemory, SectionGlobal,
	SectionExport, SectionStart, SectionElement, SectionDataCount, SectionCode, SectionData,
}

// Bodies are the bodies of a module's sections, by their ids; nil for one that it does not have. They share the
// module's memory.
type Bodies [SectionDataCount + 1][]byte

// Split returns the sections of a module, except custom ones.
func Split(wasm []byte) (bodies Bodies, err error) {
	next := 0
	for s, err := range abi.Sections(wasm) {
		switch {
		case err != nil:
			return bodies, err
		case s.ID == abi.SectionCustom && !utf8.ValidString(s.Name):
			return bodies, errors.New("name of a custom section is not UTF-8")
		case s.ID == abi.SectionCustom:
			continue
		case int(s.ID) < len(bodies) && bodies[s.ID] != nil:
			return bodies, fmt.Errorf("section %d occurs twice", s.ID)
		}
		for next < len(Order) && Order[next] != s.ID {
			next++
		}
		if next == len(Order) {
			return bodies, fmt.Errorf("section %d is unknown, beyond WebAssembly 2.0, or out of order", s.ID)
		}
		bodies[s.ID] = s.Body
	}
	return bodies, nil
}

// AppendUint32 appends a number in unsigned LEB128.
func AppendUint32(out []byte, n uint32) []byte { return abi.AppendUint32(out, n) }

// AppendSection appends a section.
func AppendSection(out []byte, id byte, body []byte) []byte {
	return append(AppendUint32(append(out, id), uint32(len(body))), body...)
}

// AppendName appends a name.
func AppendName(out []byte, name string) []byte {
	return append(AppendUint32(out, uint32(len(name))), name...)
}
