// Package wattest assembles modules from a subset of WebAssembly's text format, for tests.
package wattest

import (
	"encoding/binary"
	"math"
	"strconv"
	"strings"

	"github.com/sonde-probe/sonde/wasmhost/abi"
)

// node is a word, a string (with a leading quote) or a list.
type node struct {
	word string
	list []node
}

func (n node) head() string {
	if len(n.list) == 0 {
		return ""
	}
	return n.list[0].word
}

// parse parses the lists of a text.
func parse(text string) []node {
	var stack [][]node
	var out []node
	for text = strings.TrimSpace(text); text != ""; text = strings.TrimSpace(text) {
		switch {
		case strings.HasPrefix(text, ";;"):
			_, text, _ = strings.Cut(text, "\n")
		case text[0] == '(':
			stack, out, text = append(stack, out), nil, text[1:]
		case text[0] == ')':
			list := node{list: out}
			out, stack = append(stack[len(stack)-1], list), stack[:len(stack)-1]
			text = text[1:]
		case text[0] == '"':
			s, err := strconv.QuotedPrefix(text)
			check(err)
			plain, err := strconv.Unquote(s)
			check(err)
			out, text = append(out, node{word: `"` + plain}), text[len(s):]
		default:
			i := strings.IndexAny(text, " \t\r\n()\"")
			if i < 0 {
				i = len(text)
			}
			out, text = append(out, node{word: text[:i]}), text[i:]
		}
	}
	return out
}

func check(err error) {
	if err != nil {
		panic(err)
	}
}

// assembler assembles a module.
type assembler struct {
	types   []string // "params:results"
	nImport uint32
	names   map[string]uint32 // of functions and globals
	n       map[string]uint32 // number of functions and globals
	section map[byte][]byte
	count   map[byte]uint32
	start   []byte
	locals  map[string]uint32
}

// Assemble assembles a module from the text of its fields. Instructions must not be folded; labels are numbers. It panics on
// unsupported text.
func Assemble(text string) []byte {
	a := &assembler{names: map[string]uint32{}, n: map[string]uint32{}, section: map[byte][]byte{}, count: map[byte]uint32{}}
	fields := parse(text)
	for _, f := range fields {
		a.declare(f)
	}
	for _, f := range fields {
		a.field(f)
	}
	return a.module()
}

// declare numbers functions and globals, which may be used before their definition.
func (a *assembler) declare(f node) {
	kind := f.head()
	if kind == "import" {
		kind = f.list[3].head()
		f = f.list[3]
	}
	if kind != "func" && kind != "global" {
		return
	}
	if len(f.list) > 1 && strings.HasPrefix(f.list[1].word, "$") {
		a.names[f.list[1].word] = a.n[kind]
	}
	a.n[kind]++
}

func (a *assembler) field(f node) {
	switch f.head() {
	case "import":
		a.importFunc(f)
	case "func":
		a.function(f)
	case "memory":
		a.add(5, append([]byte{}, limits(f.list[1:])...))
	case "table":
		a.add(4, append([]byte{0x70}, limits(f.list[1:])...))
	case "global": // (global $x (mut i32) 0)
		a.add(6, append([]byte{0x7f, 1, 0x41}, append(sleb(number(f.list[3].word)), 0x0b)...))
	case "export":
		a.export(f)
	case "data":
		body := append([]byte{0, 0x41}, sleb(number(f.list[1].word))...)
		a.add(11, append(append(body, 0x0b), text(f.list[2].word[1:])...))
	case "elem": // (elem 0 $f $g)
		body := append(append([]byte{0, 0x41}, sleb(number(f.list[1].word))...), 0x0b)
		body = append(body, uleb(uint32(len(f.list)-2))...)
		for _, name := range f.list[2:] {
			body = append(body, uleb(a.ref(name.word))...)
		}
		a.add(9, body)
	case "start":
		a.start = uleb(a.ref(f.list[1].word))
	default:
		panic("unknown field " + f.head())
	}
}

func (a *assembler) add(section byte, body []byte) {
	a.section[section] = append(a.section[section], body...)
	a.count[section]++
}

func limits(words []node) []byte {
	least := uleb(uint32(number(words[0].word)))
	if len(words) == 1 {
		return append([]byte{0}, least...)
	}
	return append(append([]byte{1}, least...), uleb(uint32(number(words[1].word)))...)
}

func (a *assembler) export(f node) {
	kinds := map[string]byte{"func": 0, "table": 1, "memory": 2, "global": 3}
	what := f.list[2].list
	a.add(7, append(append(text(f.list[1].word[1:]), kinds[what[0].word]), uleb(a.ref(what[1].word))...))
}

func (a *assembler) importFunc(f node) {
	what := f.list[3]
	body := append(text(f.list[1].word[1:]), text(f.list[2].word[1:])...)
	switch what.head() {
	case "func":
		_, params, results, _ := signature(what.list[1:])
		body = append(append(body, 0), uleb(a.typeOf(params, results))...)
		a.nImport++
	case "memory":
		body = append(append(body, 2), limits(what.list[1:])...)
	}
	a.add(2, body)
}

// signature splits a function into the names of its parameters, its types, and its code.
func signature(words []node) (names []string, params, results string, rest []node) {
	if len(words) > 0 && strings.HasPrefix(words[0].word, "$") {
		words = words[1:]
	}
	for i, w := range words {
		switch w.head() {
		case "param":
			for _, p := range w.list[1:] {
				if strings.HasPrefix(p.word, "$") {
					names = append(names, p.word)
					continue
				}
				params += p.word + " "
			}
		case "result":
			results += w.list[1].word + " "
		default:
			return names, params, results, words[i:]
		}
	}
	return names, params, results, nil
}

func (a *assembler) typeOf(params, results string) uint32 {
	want := params + ":" + results
	for i, t := range a.types {
		if t == want {
			return uint32(i)
		}
	}
	a.types = append(a.types, want)
	return uint32(len(a.types) - 1)
}

var valueTypes = map[string]byte{"i32": 0x7f, "i64": 0x7e, "f32": 0x7d, "f64": 0x7c}

func typeBytes(names string) []byte {
	words := strings.Fields(names)
	b := uleb(uint32(len(words)))
	for _, w := range words {
		b = append(b, valueTypes[w])
	}
	return b
}

func (a *assembler) function(f node) {
	names, params, results, code := signature(f.list[1:])
	a.add(3, uleb(a.typeOf(params, results)))
	a.locals = map[string]uint32{}
	for i, name := range names {
		a.locals[name] = uint32(i)
	}
	next := uint32(len(strings.Fields(params)))
	var declared []byte
	var n uint32
	for len(code) > 0 && code[0].head() == "local" {
		a.locals[code[0].list[1].word] = next + n
		declared = append(append(declared, 1), valueTypes[code[0].list[2].word])
		n, code = n+1, code[1:]
	}
	body := append(uleb(n), declared...)
	body = append(append(body, a.code(code)...), 0x0b)
	a.add(10, append(uleb(uint32(len(body))), body...))
}

// ops are the instructions, each with its operands: b a block type, l a label, f a function, v a local, g a global, m a memory
// offset, i and j constants, d a float, 0 a zero byte, r a reference type, s a signature, t the labels of a table.
var ops = map[string]struct {
	code   string
	follow string
}{
	"unreachable": {"\x00", ""}, "nop": {"\x01", ""}, "block": {"\x02", "b"}, "loop": {"\x03", "b"}, "if": {"\x04", "b"},
	"else": {"\x05", ""}, "end": {"\x0b", ""}, "br": {"\x0c", "l"}, "br_if": {"\x0d", "l"}, "br_table": {"\x0e", "t"}, "return": {"\x0f", ""},
	"call": {"\x10", "f"}, "call_indirect": {"\x11", "s0"}, "drop": {"\x1a", ""}, "local.get": {"\x20", "v"}, "local.set": {"\x21", "v"}, "local.tee": {"\x22", "v"},
	"global.get": {"\x23", "g"}, "global.set": {"\x24", "g"}, "i32.load": {"\x28", "m"}, "i64.load": {"\x29", "m"},
	"i32.load8_u": {"\x2d", "m"}, "i32.store": {"\x36", "m"}, "i64.store": {"\x37", "m"}, "i32.store8": {"\x3a", "m"},
	"memory.size": {"\x3f", "0"}, "memory.grow": {"\x40", "0"}, "i32.const": {"\x41", "i"}, "i64.const": {"\x42", "j"},
	"f64.const": {"\x44", "d"}, "i32.eqz": {"\x45", ""}, "i32.eq": {"\x46", ""}, "i32.ne": {"\x47", ""}, "i32.lt_s": {"\x48", ""},
	"i32.gt_s": {"\x4a", ""}, "i64.eqz": {"\x50", ""}, "i32.add": {"\x6a", ""}, "i32.sub": {"\x6b", ""}, "i32.mul": {"\x6c", ""},
	"i32.div_s": {"\x6d", ""}, "i32.wrap_i64": {"\xa7", ""}, "ref.null": {"\xd0", "r"}, "table.grow": {"\xfc\x0f", "i"},
	"i64.add": {"\x7c", ""}, "i64.mul": {"\x7e", ""}, "memory.copy": {"\xfc\x0a", "00"}, "memory.fill": {"\xfc\x0b", "0"}, "ref.func": {"\xd2", "f"},
}

func (a *assembler) code(words []node) []byte {
	var b []byte
	for len(words) > 0 {
		op, ok := ops[words[0].word]
		if !ok {
			panic("unknown instruction " + words[0].word)
		}
		b, words = append(b, op.code...), words[1:]
		for _, kind := range op.follow {
			more, used := a.operand(kind, words)
			b, words = append(b, more...), words[used:]
		}
	}
	return b
}

// operand encodes an operand of an instruction, and returns the number of words used.
func (a *assembler) operand(kind rune, words []node) (b []byte, used int) {
	word := ""
	if len(words) > 0 {
		word = words[0].word
	}
	switch kind {
	case 'b':
		if t, ok := valueTypes[word]; ok {
			return []byte{t}, 1
		}
		return []byte{0x40}, 0
	case '0':
		return []byte{0}, 0
	case 'r':
		return []byte{0x70}, 1
	case 'm':
		offset, ok := strings.CutPrefix(word, "offset=")
		if !ok {
			return []byte{0, 0}, 0
		}
		return append([]byte{0}, uleb(uint32(number(offset)))...), 1
	case 'd':
		f, err := strconv.ParseFloat(word, 64)
		check(err)
		return binary.LittleEndian.AppendUint64(nil, math.Float64bits(f)), 1
	case 'i', 'j':
		return sleb(number(word)), 1
	case 's':
		_, params, results, rest := signature(words)
		return uleb(a.typeOf(params, results)), len(words) - len(rest)
	case 't':
		for used < len(words) && isNumber(words[used].word) {
			b = append(b, uleb(uint32(number(words[used].word)))...)
			used++
		}
		return append(uleb(uint32(used-1)), b...), used
	}
	return uleb(a.ref(word)), 1
}

func isNumber(word string) bool { return word != "" && word[0] >= '0' && word[0] <= '9' }

// ref returns the number of a label, a function, a global or a local.
func (a *assembler) ref(word string) uint32 {
	if n, ok := a.locals[word]; ok {
		return n
	}
	if n, ok := a.names[word]; ok {
		return n
	}
	return uint32(number(word))
}

func number(word string) int64 {
	n, err := strconv.ParseInt(word, 0, 64)
	check(err)
	return n
}

func uleb(n uint32) []byte { return abi.AppendUint32(nil, n) }

func sleb(n int64) []byte {
	var b []byte
	for {
		c := byte(n & 0x7f)
		n >>= 7
		if n == 0 && c&0x40 == 0 || n == -1 && c&0x40 != 0 {
			return append(b, c)
		}
		b = append(b, c|0x80)
	}
}

func text(s string) []byte { return append(uleb(uint32(len(s))), s...) }

func (a *assembler) module() []byte {
	for _, t := range a.types {
		params, results, _ := strings.Cut(t, ":")
		a.add(1, append(append([]byte{0x60}, typeBytes(params)...), typeBytes(results)...))
	}
	out := []byte("\x00asm\x01\x00\x00\x00")
	for _, id := range []byte{1, 2, 3, 4, 5, 6, 7, 8, 9, 10, 11} {
		body := append(uleb(a.count[id]), a.section[id]...)
		switch {
		case id == 8 && a.start != nil:
			body = a.start
		case a.count[id] == 0:
			continue
		}
		out = append(append(append(out, id), uleb(uint32(len(body)))...), body...)
	}
	return out
}
