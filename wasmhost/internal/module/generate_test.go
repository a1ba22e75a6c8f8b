package module_test

import (
	"encoding/binary"
	"math"

	"github.com/sonde-probe/sonde/wasmhost/abi"
)

// generator generates a valid module from a stream of choices. The module terminates: each loop and
// each function decrements a global and traps at 0. Floating-point numbers are not written to
// memory, and NaNs have no effect, because their bits may differ between runs.
type generator struct {
	choices []byte
	code    []byte
	locals  []byte // types
	labels  []byte // type of the value that a branch to each label passes, or 0; innermost last
	result  byte   // type, or 0
	depth   int
	numbers bool // modify only numbers and memory: no tables and no passive segments
}

const (
	i32, i64, f32, f64, v128 = 0x7f, 0x7e, 0x7d, 0x7c, 0x7b

	globalLimit = 0 // i32: decremented by countDown
	globalI32   = 1
	globalI64   = 2
	globalF64   = 3
	functions   = 6
	tableSize   = 8
)

// functionTypes has the types of functions, each with at most one result; function n has type n.
var functionTypes = [...]struct {
	params []byte
	result byte
}{{[]byte{i32}, i64}, {nil, 0}, {[]byte{i32, i64}, i32}, {[]byte{f64, i32}, f64}, {[]byte{i64, v128}, i64}, {[]byte{i32}, i32}}

// choose returns a number below n.
func (g *generator) choose(n int) int {
	if len(g.choices) == 0 {
		return 0
	}
	c := int(g.choices[0])
	g.choices = g.choices[1:]
	return c % n
}

func (g *generator) op(bytes ...byte) { g.code = append(g.code, bytes...) }

func (g *generator) u32(n int) { g.code = abi.AppendUint32(g.code, uint32(n)) }

// constant pushes a constant.
func (g *generator) constant(t byte) {
	n := []int64{0, 1, -1, 7, 255, 1 << 15, -1 << 31, 1<<31 - 1}[g.choose(8)]
	switch t {
	case i32:
		g.op(0x41)
		g.signed(n)
	case i64:
		g.op(0x42)
		g.signed(n<<31 ^ n)
	case f32:
		g.op(0x43)
		g.code = binary.LittleEndian.AppendUint32(g.code, math.Float32bits(float32(n)/3))
	case f64:
		g.op(0x44)
		g.code = binary.LittleEndian.AppendUint64(g.code, math.Float64bits(float64(n)/3))
	case v128:
		g.op(0xfd, 12)
		for i := range 16 {
			g.op(byte(n) + byte(i))
		}
	}
}

func (g *generator) signed(n int64) {
	for n < -64 || n > 63 {
		g.op(byte(n) | 0x80)
		n >>= 7
	}
	g.op(byte(n) & 0x7f)
}

// address pushes an address that is mostly valid.
func (g *generator) address() {
	g.value(i32)
	if g.choose(30) != 0 {
		g.op(0x41)
		g.signed(0xffe0)
		g.op(0x71)
	}
}

// small pushes a number from 0 to mask.
func (g *generator) small(mask int64) {
	g.value(i32)
	g.op(0x41)
	g.signed(mask)
	g.op(0x71)
}

func (g *generator) memory(op byte, prefix ...byte) {
	g.op(append(prefix, op, 0)...)
	g.u32(g.choose(40))
}

// localOf returns a local of a type.
func (g *generator) localOf(t byte) int {
	var all []int
	for i, l := range g.locals {
		if l == t {
			all = append(all, i)
		}
	}
	return all[g.choose(len(all))]
}

// value pushes a value.
func (g *generator) value(t byte) {
	if g.depth++; g.depth > 12 || len(g.choices) == 0 {
		g.constant(t)
		g.depth--
		return
	}
	defer func() { g.depth-- }()
	switch c := g.choose(16); {
	case c < 2:
		g.constant(t)
	case c < 5:
		g.op(0x20)
		g.u32(g.localOf(t))
	case c == 5: // select
		g.value(t)
		g.value(t)
		g.value(i32)
		if t == v128 || g.choose(2) == 0 {
			g.op(0x1c, 1, t)
		} else {
			g.op(0x1b)
		}
	case c == 6: // if
		g.value(i32)
		g.op(0x04, t)
		g.labels = append(g.labels, t)
		g.statements(2)
		g.value(t)
		g.op(0x05)
		g.value(t)
		g.labels = g.labels[:len(g.labels)-1]
		g.op(0x0b)
	case c == 7: // a block with an early exit
		g.op(0x02, t)
		g.labels = append(g.labels, t)
		g.statements(1)
		g.value(t)
		g.value(i32)
		g.op(0x0d, 0)
		g.statements(1)
		g.labels = g.labels[:len(g.labels)-1]
		g.op(0x0b)
	case c == 8: // a call
		for f, ft := range functionTypes {
			if ft.result == t {
				for _, p := range ft.params {
					g.value(p)
				}
				g.op(0x10)
				g.u32(f)
				return
			}
		}
		g.constant(t)
	case c == 9: // tee
		g.value(t)
		g.op(0x22)
		g.u32(g.localOf(t))
	default:
		g.operation(t)
	}
}

// operation pushes the result of an instruction.
func (g *generator) operation(t byte) {
	unary := func(of byte, ops ...byte) { g.value(of); g.op(ops...) }
	binary := func(of byte, ops ...byte) { g.value(of); unary(of, ops...) }
	switch t {
	case i32:
		switch c := g.choose(12); c {
		case 0, 1:
			binary(i32, 0x6a+byte(g.choose(15))) // add to rotr; divisions trap
		case 2:
			binary(i32, 0x46+byte(g.choose(10)))
		case 3:
			binary(i64, 0x51+byte(g.choose(10)))
		case 4:
			binary(f64, 0x61+byte(g.choose(6)))
		case 5:
			g.address()
			g.memory([]byte{0x28, 0x2c, 0x2d, 0x2e, 0x2f}[g.choose(5)])
		case 6:
			g.op(0x3f, 0) // memory.size
		case 7:
			unary(i64, 0xa7)
		case 8:
			g.small(tableSize - 1)
			g.op(0x25, 0, 0xd1) // table.get, ref.is_null
		case 9:
			unary(v128, 0xfd, 27, byte(g.choose(4))) // i32x4.extract_lane
		case 10:
			unary(f64, 0xfc, 2+byte(g.choose(2))) // i32.trunc_sat
		default:
			unary(i32, []byte{0x45, 0x67, 0x68, 0x69, 0xc0, 0xc1}[g.choose(6)])
		}
	case i64:
		switch c := g.choose(8); c {
		case 0, 1:
			binary(i64, 0x7c+byte(g.choose(15)))
		case 2:
			g.address()
			g.memory([]byte{0x29, 0x30, 0x31, 0x32, 0x33, 0x34, 0x35}[g.choose(7)])
		case 3:
			unary(i32, 0xac+byte(g.choose(2)))
		case 4:
			g.op(0x23, globalI64)
		case 5:
			unary(v128, 0xfd, 29, byte(g.choose(2)))
		default:
			unary(i64, []byte{0x79, 0x7a, 0x7b, 0xc2, 0xc3, 0xc4}[g.choose(6)])
		}
	case f32:
		binary(f32, []byte{0x92, 0x93, 0x94, 0x95, 0x96, 0x97}[g.choose(6)])
	case f64:
		switch g.choose(5) {
		case 0:
			unary(i32, 0xb7+byte(g.choose(2)))
		case 1:
			unary(f64, []byte{0x99, 0x9a, 0x9b, 0x9c, 0x9d, 0x9e, 0x9f}[g.choose(7)])
		case 2:
			g.op(0x23, globalF64)
		case 3:
			unary(f32, 0xbb)
		default:
			binary(f64, 0xa0+byte(g.choose(6)))
		}
	case v128:
		switch g.choose(6) {
		case 0:
			binary(v128, 0xfd, 0xae, 1) // i32x4.add
		case 1:
			binary(v128, 0xfd, 0xd5, 1) // i64x2.mul
		case 2:
			g.value(v128)
			g.value(v128)
			g.op(0xfd, 13)
			for range 16 {
				g.op(byte(g.choose(32)))
			}
		case 3:
			unary(i32, 0xfd, 17) // i32x4.splat
		case 4:
			g.address()
			g.memory(0, 0xfd)
		default:
			binary(v128, 0xfd, 78+byte(g.choose(4))) // and, andnot, or, xor
		}
	}
}

func (g *generator) statements(n int) {
	for range 1 + g.choose(n+1) {
		g.statement()
	}
}

// statement emits code that leaves the stack unchanged.
func (g *generator) statement() {
	if g.depth++; g.depth > 8 || len(g.choices) == 0 {
		g.depth--
		return
	}
	defer func() { g.depth-- }()
	block := func(op byte, inside func()) {
		g.op(op, 0x40)
		g.labels = append(g.labels, 0)
		inside()
		g.labels = g.labels[:len(g.labels)-1]
		g.op(0x0b)
	}
	switch g.choose(22) {
	case 0, 1:
		t := g.locals[g.choose(len(g.locals))]
		g.value(t)
		g.op(0x21)
		g.u32(g.localOf(t))
	case 2:
		which := g.choose(3)
		g.value([]byte{i32, i64, f64}[which])
		g.op(0x24, globalI32+byte(which))
	case 3:
		g.address()
		g.value(i32)
		g.memory([]byte{0x36, 0x3a, 0x3b}[g.choose(3)])
	case 4:
		g.address()
		g.value(i64)
		g.memory([]byte{0x37, 0x3c, 0x3d, 0x3e}[g.choose(4)])
	case 5:
		block(0x02, func() { g.statements(3) })
	case 6, 7:
		block(0x03, func() {
			g.countDown()
			g.statements(3)
			g.value(i32)
			g.op(0x0d, 0)
		})
	case 8, 9:
		g.value(i32)
		block(0x04, func() {
			g.statements(2)
			if g.choose(2) == 0 {
				g.op(0x05)
				g.statements(2)
			}
		})
	case 10, 11:
		g.branch(g.choose(len(g.labels)))
	case 12:
		block(0x02, func() {
			block(0x02, func() {
				g.value(i32)
				g.op(0x0e, 3)
				for range 4 {
					g.u32(g.choose(2))
				}
			})
			g.statements(2)
		})
	case 13:
		f := g.choose(functions)
		for _, p := range functionTypes[f].params {
			g.value(p)
		}
		if g.choose(2) == 0 {
			g.op(0x10)
			g.u32(f)
		} else {
			g.small(tableSize - 1)
			g.op(0x11)
			g.u32(f)
			g.op(0)
		}
		if functionTypes[f].result != 0 {
			g.op(0x1a)
		}
	case 14:
		g.bulk()
	case 15:
		g.small(1)
		g.op(0x40, 0, 0x24, globalI32) // memory.grow
	case 16:
		if !g.numbers {
			g.table()
		}
	case 17: // unreachable code
		block(0x02, func() {
			g.op([]byte{0x00, 0x0f}[g.returns()])
			g.statements(2)
		})
	case 18: // long straight-line code
		local := g.localOf(i32)
		g.op(0x20)
		g.u32(local)
		for range 30 * (1 + g.choose(20)) {
			g.op(0x41, byte(g.choose(64)), 0x6a)
		}
		g.op(0x21)
		g.u32(local)
	case 19:
		g.address()
		g.value(v128)
		g.memory(11, 0xfd)
	case 20: // a block with a parameter and two results
		g.value(i32)
		g.op(0x02, functions)
		g.op(0x41, 3, 0x0b, 0x6a, 0x24, globalI32)
	default:
		g.op(0x01)
	}
}

// returns is 1 if the function may return without a value, and 0 otherwise.
func (g *generator) returns() int {
	if g.result == 0 {
		return 1
	}
	return 0
}

// branch emits a conditional branch to a label, or an unconditional branch in a separate block.
func (g *generator) branch(label int) {
	t := g.labels[len(g.labels)-1-label]
	if g.choose(3) > 0 {
		if t != 0 {
			g.value(t)
		}
		g.value(i32)
		g.op(0x0d)
		g.u32(label)
		if t != 0 {
			g.op(0x1a)
		}
		return
	}
	g.value(i32)
	g.op(0x04, 0x40)
	g.labels = append(g.labels, 0)
	if t != 0 {
		g.value(t)
	}
	g.op(0x0c)
	g.u32(label + 1)
	g.labels = g.labels[:len(g.labels)-1]
	g.op(0x0b)
}

func (g *generator) bulk() {
	kinds := 4
	if g.numbers {
		kinds = 2
	}
	switch g.choose(kinds) {
	case 0:
		g.address()
		g.value(i32)
		g.small(0x3fff)
		g.op(0xfc, 11, 0)
	case 1:
		g.address()
		g.address()
		g.small(0x3fff)
		g.op(0xfc, 10, 0, 0)
	case 2:
		g.address()
		g.small(15)
		g.small(15)
		g.op(0xfc, 8, 1, 0)
	default:
		g.op(0xfc, 9, 1) // data.drop
	}
}

func (g *generator) table() {
	switch g.choose(6) {
	case 0:
		g.small(tableSize - 1)
		g.op(0xd2)
		g.u32(g.choose(functions))
		g.op(0x26, 0)
	case 1:
		g.op(0xd0, 0x70)
		g.small(3)
		g.op(0xfc, 15, 0, 0x24, globalI32) // table.grow
	case 2:
		g.small(tableSize - 1)
		g.op(0xd0, 0x70)
		g.small(1)
		g.op(0xfc, 17, 0)
	case 3:
		g.small(tableSize - 1)
		g.small(3)
		g.small(3)
		g.op(0xfc, 12, 1, 0) // table.init
	case 4:
		g.small(tableSize - 1)
		g.small(tableSize - 1)
		g.small(3)
		g.op(0xfc, 14, 0, 0)
	default:
		g.op(0xfc, 13, 1) // elem.drop
	}
}

// countDown emits code that traps when too much has been executed.
func (g *generator) countDown() {
	g.op(0x23, globalLimit, 0x45, 0x04, 0x40, 0x00, 0x0b, 0x23, globalLimit, 0x41, 1, 0x6b, 0x24, globalLimit)
}

// function returns a body.
func (g *generator) function(n int) string {
	t := functionTypes[n]
	extra := []byte{i32, i32, i64, f32, f64, v128}
	g.code, g.result, g.depth = nil, t.result, 0
	g.locals = append(append([]byte{}, t.params...), extra...)
	g.labels = append(g.labels[:0], t.result)
	g.op(byte(len(extra)))
	for _, l := range extra {
		g.op(1, l)
	}
	g.countDown()
	g.statements(6)
	if t.result != 0 {
		g.value(t.result)
	}
	g.op(0x0b)
	return string(abi.AppendUint32(nil, uint32(len(g.code)))) + string(g.code)
}

// generate returns a module that exports a function run, of type i32 to i64, its memory and its
// globals. With numbers, it modifies nothing else.
func generate(choices []byte, numbers bool) []byte {
	g := &generator{choices: choices, numbers: numbers}
	var types, bodies []string
	for n, t := range functionTypes {
		result := ""
		if t.result != 0 {
			result = string([]byte{t.result})
		}
		types = append(types, "\x60"+sized(string(t.params))+sized(result))
		bodies = append(bodies, g.function(n))
	}
	types = append(types, "\x60\x01\x7f\x02\x7f\x7f") // type of a block
	dataCount, data := section(12, "\x02"), entries("\x00\x41\x10\x0b\x04abcd", "\x01\x18abcdefghijklmnopqrstuvwx")
	if numbers {
		dataCount, data = "", entries("\x00\x41\x10\x0b\x04abcd")
	}
	return []byte("\x00asm\x01\x00\x00\x00" +
		section(1, entries(types...)) +
		section(3, string([]byte{functions, 0, 1, 2, 3, 4, 5})) +
		section(4, entries(string([]byte{0x70, 1, tableSize, tableSize + 4}))) +
		section(5, entries("\x01\x01\x03")) +
		section(6, entries("\x7f\x01\x41\xc8\x01\x0b", "\x7f\x01\x41\x05\x0b", "\x7e\x01\x42\x06\x0b", "\x7c\x01\x44\x00\x00\x00\x00\x00\x00\xf0\x3f\x0b")) +
		section(7, entries("\x03run\x00\x00", "\x03mem\x02\x00", "\x01l\x03\x00", "\x01i\x03\x01", "\x01j\x03\x02")) +
		section(9, entries("\x00\x41\x00\x0b\x06\x00\x01\x02\x03\x04\x05", "\x01\x00\x04\x00\x01\x02\x05")) +
		dataCount +
		section(10, entries(bodies...)) +
		section(11, data))
}
