package module_test

import (
	"fmt"
	"strings"
	"testing"

	"github.com/sonde-probe/sonde/wasmhost/abi"
	"github.com/sonde-probe/sonde/wasmhost/internal/module"
)

// section returns a section of a module.
func section(id byte, body string) string {
	return string(abi.AppendUint32([]byte{id}, uint32(len(body)))) + body
}

// entries returns a vector of entries.
func entries(all ...string) string { return string([]byte{byte(len(all))}) + strings.Join(all, "") }

// code returns the body of a function without locals.
func code(instructions string) string { return sized("\x00" + instructions + "\x0b") }

func sized(s string) string { return string([]byte{byte(len(s))}) + s }

// withTypes is the number of types of handmade modules: 41, so that each heap type from 1 to 40
// exists. All types are () -> ().
const withTypes = 41

func handmade(sections ...string) []byte {
	types := make([]string, withTypes)
	for i := range types {
		types[i] = "\x60\x00\x00"
	}
	all := strings.Join(types, "")
	return []byte("\x00asm\x01\x00\x00\x00" + section(1, string([]byte{withTypes})+all) + strings.Join(sections, ""))
}

// function returns a module with one function, given its locals and instructions.
func function(body string) []byte {
	return handmade(section(3, entries("\x00")), section(10, entries(sized(body+"\x0b"))))
}

// beyond returns modules that have the type byte t in each place where a type may occur. wazero
// accepts 0x63 and 0x64, which are followed by a heap type, and 0x69, although they are not in
// WebAssembly 2.0.
func beyond(t byte) map[string][]byte {
	b := string([]byte{t})
	negative := string([]byte{t | 0x80, 0x7f}) // the same number, encoded in two bytes
	return map[string][]byte{
		"a parameter":                      []byte("\x00asm\x01\x00\x00\x00" + section(1, entries("\x60\x01"+b+"\x70\x00"))),
		"a result":                         []byte("\x00asm\x01\x00\x00\x00" + section(1, entries("\x60\x00\x01"+b+"\x70"))),
		"an imported global":               handmade(section(2, entries("\x01a\x01b\x03"+b+"\x70\x00"))),
		"an imported table":                handmade(section(2, entries("\x01a\x01b\x01"+b+"\x70\x00\x01"))),
		"a table":                          handmade(section(4, entries(b+"\x70\x00\x01"))),
		"a table with a value":             handmade(section(4, entries("\x40\x00"+b+"\x70\x00\x01\xd0\x70\x0b"))),
		"a global":                         handmade(section(6, entries(b+"\x70\x00\xd0\x70\x0b"))),
		"ref.null of a global":             handmade(section(6, entries("\x70\x00\xd0"+b+"\x0b"))),
		"a segment of elements":            handmade(section(9, entries("\x05"+b+"\x70\x00"))),
		"an active segment of elements":    handmade(section(4, entries("\x70\x00\x01")), section(9, entries("\x06\x00\x41\x00\x0b"+b+"\x70\x00"))),
		"ref.null in a segment":            handmade(section(9, entries("\x05\x70\x01\xd0"+b+"\x0b"))),
		"a local":                          function("\x01\x01" + b + "\x70"),
		"a block":                          function("\x00\x02" + b + "\x70\xd0\x70\x0b\x1a"),
		"a loop":                           function("\x00\x03" + b + "\x70\xd0\x70\x0b\x1a"),
		"an if":                            function("\x00\x41\x00\x04" + b + "\x70\xd0\x70\x05\xd0\x70\x0b\x1a"),
		"a block, in two bytes":            function("\x00\x02" + negative + "\x70\xd0\x70\x0b\x1a"),
		"a block with the index of a type": function("\x00\x02" + b + "\x02\xd0\x02\x0b\x1a"),
		"select":                           function("\x00\xd0\x70\xd0\x70\x41\x00\x1c\x01" + b + "\x70\x1a"),
		"ref.null":                         function("\x00\xd0" + b + "\x1a"),
	}
}

// TestTypesBeyondTheSpecificationAreRejected checks unknown types: a runtime that supports more
// types than Rewrite would find instructions at other offsets.
func TestTypesBeyondTheSpecificationAreRejected(t *testing.T) {
	for _, b := range []byte{0x63, 0x64, 0x69, 0x71, 0x6e, 0x00, 0x80} {
		for name, wasm := range beyond(b) {
			if name == "a table with a value" || b == 0 && strings.HasPrefix(name, "a block") || b == 0 && (name == "a loop" || name == "an if") {
				continue // tested below: the index of a type
			}
			t.Run(fmt.Sprintf("%s of %#x", name, b), func(t *testing.T) {
				if out, _, err := module.Meter(wasm); err == nil {
					t.Errorf("accepted: %x", out)
				}
			})
		}
	}
}

// TestHiddenCodeIsRejected has modules that wazero would parse differently from the specification,
// so that code would escape a rewriter that follows the specification.
func TestHiddenCodeIsRejected(t *testing.T) {
	types := section(1, entries("\x4e\x01\x60\x00\x00"))
	manyGlobals := "\x06\x82\x85\x80\x80\x00\x80\x01" + strings.Repeat("\x7f\x01\x41\x00\x0b", 128)
	for name, wasm := range map[string][]byte{
		// To wazero, 63 02 and 63 28 are block types; the loop 03 40 never ends.
		"a loop in the type of a block": function("\x00\x02\x63\x02\x01\x02\x63\x28\x03\x40\x0c\x00\x0b\x00\x0b\x1a\x00\x0b\x1a"),
		// To wazero's validator, 63 20 is the type of a select; its compiler executes 20 01.
		"code in the type of a select": function("\x01\x02\x70\xd0\x70\xd0\x70\x41\x00\x1c\x01\x63\x20\x01\x1a"),
		// To wazero, six million locals, which it allocates before it validates.
		"locals in the type of a local":  handmade(section(3, entries("\x00")), manyGlobals, section(10, entries(sized("\x03\x00\x63\x00\xff\xff\xff\x02\x7f\x0b")))),
		"a table with a value":           handmade(section(4, entries("\x40\x00\x70\x00\x01\xd0\x70\x0b"))),
		"a group of types":               []byte("\x00asm\x01\x00\x00\x00" + types),
		"a select of two types":          function("\x00\x41\x00\x41\x00\x41\x00\x1c\x02\x7f\x7f\x1a"),
		"a segment of another kind":      handmade(section(9, entries("\x01\x01\x00"))),
		"a segment of another memory":    handmade(section(5, entries("\x00\x01")), section(11, entries("\x02\x01\x41\x00\x0b\x00"))),
		"a number of six bytes":          function("\x00\x41\x80\x80\x80\x80\x80\x00\x1a"),
		"a type of a block with 33 bits": function("\x00\x02\x80\x80\x80\x80\x40\x0b"),
		"bytes after the start function": handmade(section(3, entries("\x00")), section(8, "\x00\x00"), section(10, entries(code("")))),
		"bytes after the count of data":  handmade(section(12, "\x00\x00")),
		"two memories":                   handmade(section(5, entries("\x00\x01", "\x00\x01"))),
		"bytes after the memory":         handmade(section(5, "\x01\x00\x01\x00")),
	} {
		t.Run(name, func(t *testing.T) {
			if out, _, err := module.Meter(wasm); err == nil {
				t.Errorf("accepted: %x", out)
			}
		})
	}
}
