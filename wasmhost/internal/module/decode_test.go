package module_test

import (
	"bytes"
	"encoding/binary"
	"fmt"
	"testing"

	"github.com/sonde-probe/sonde/wasmhost/abi"
)

// decoder decodes code by the tables of the WebAssembly core specification 2, section 5.4,
// independently of the package under test, so that both must agree on the length of each
// instruction. It panics on invalid code.
type decoder struct {
	b  []byte
	at int
}

func (d *decoder) byte() byte {
	d.at++
	return d.b[d.at-1]
}

func (d *decoder) u32() uint32 {
	n, size := binary.Uvarint(d.b[d.at:])
	if size <= 0 || n > 1<<32-1 {
		panic("not a number")
	}
	d.at += size
	return uint32(n)
}

// number skips a LEB128 number.
func (d *decoder) number() {
	for d.byte() >= 0x80 {
	}
}

// operands returns the format of an instruction's operands: n is a number, f a function, b a block
// type, t a value type, r a reference type, 0 a zero byte, 4 and 8 that many bytes, 6 16 bytes, l a
// vector of labels, s a vector of types.
func operands(op byte) string {
	switch {
	case op == 0x02, op == 0x03, op == 0x04:
		return "b"
	case op == 0x0c, op == 0x0d, op >= 0x20 && op <= 0x26:
		return "n"
	case op == 0x0e:
		return "ln"
	case op == 0x10, op == 0xd2:
		return "f"
	case op == 0x11, op >= 0x28 && op <= 0x3e:
		return "nn"
	case op == 0x1c:
		return "s"
	case op == 0x3f, op == 0x40:
		return "0"
	case op == 0x41, op == 0x42:
		return "n"
	case op == 0x43:
		return "4"
	case op == 0x44:
		return "8"
	case op == 0xd0:
		return "r"
	case op <= 0x01, op == 0x05, op == 0x0b, op == 0x0f, op == 0x1a, op == 0x1b, op >= 0x45 && op <= 0xc4, op == 0xd1:
		return ""
	}
	panic(fmt.Sprintf("instruction %#x", op))
}

// miscOperands has the operands of the instructions 0xfc 0 to 17.
var miscOperands = [...]string{"", "", "", "", "", "", "", "", "n0", "n", "00", "0", "nn", "n", "nn", "n", "n", "n"}

// vectorOperands returns the operands of the instructions with the prefix 0xfd.
func vectorOperands(op uint32) string {
	switch {
	case op <= 11, op == 92, op == 93:
		return "nn"
	case op == 12, op == 13:
		return "6"
	case op >= 21 && op <= 34:
		return "t" // a lane: any byte
	case op >= 84 && op <= 91:
		return "nnt"
	case op <= 255:
		return ""
	}
	panic(fmt.Sprintf("vector instruction %d", op))
}

// next reads one instruction, and returns its opcode and its bytes. It replaces the index of a
// function with the result of renumber.
func (d *decoder) next(renumber func(uint32) uint32) (op byte, text []byte) {
	from := d.at
	op = d.byte()
	follow := ""
	switch op {
	case 0xfc:
		follow = miscOperands[d.byte()]
	case 0xfd:
		follow = vectorOperands(d.u32())
	default:
		follow = operands(op)
	}
	for _, kind := range follow {
		switch kind {
		case 'n', 'b':
			d.number()
		case 'f':
			return op, abi.AppendUint32([]byte{op}, renumber(d.u32()))
		case 't', 'r':
			d.at++
		case '0':
			if d.byte() != 0 {
				panic("not zero")
			}
		case '4':
			d.at += 4
		case '8':
			d.at += 8
		case '6':
			d.at += 16
		case 'l':
			for n := d.u32(); n > 0; n-- {
				d.number()
			}
		case 's':
			n := d.u32()
			d.at += int(n)
		}
	}
	return op, d.b[from:d.at]
}

// payment recognizes the code of a charge: global.get G, the units, i32.sub, local.tee S,
// global.set G, local.get S, i32.const 0, i32.lt_s, if, call T, end.
type payment struct{ count, spare, tick uint32 }

// skip skips a charge at the decoder's position, and reports whether there was one. bulk is true if
// the charge depends on an operand.
func (p payment) skip(d *decoder) (paid, bulk bool) {
	leb := func(op byte, n uint32) []byte { return abi.AppendUint32([]byte{op}, n) }
	rest := d.b[d.at:]
	match := func(want []byte) bool {
		if !bytes.HasPrefix(rest, want) {
			return false
		}
		rest = rest[len(want):]
		return true
	}
	tee := match(leb(0x22, p.spare))
	if !match(leb(0x23, p.count)) {
		return false, false
	}
	if tee {
		if !match(leb(0x20, p.spare)) || !match([]byte{0x41, 6, 0x76}) && !match([]byte{0x41, 3, 0x76}) {
			panic("the payment for an operand is incomplete")
		}
	} else {
		if rest[0] != 0x41 || rest[1] < 0x80 || rest[2] >= 0x40 || rest[1] == 0x80 && rest[2] == 0 {
			panic("no units are paid")
		}
		rest = rest[3:]
	}
	end := leb(0x10, p.tick)
	if !match([]byte{0x6b}) || !match(leb(0x22, p.spare)) || !match(leb(0x24, p.count)) || !match(leb(0x20, p.spare)) ||
		!match([]byte{0x41, 0, 0x48, 0x04, 0x40}) || !match(end) || !match([]byte{0x0b}) {
		panic("the payment is incomplete")
	}
	d.at = len(d.b) - len(rest)
	return !tee, tee
}

// contents has the parts of a module to which the code refers.
type contents struct {
	imported, globals uint32
	params            []uint32 // numbers of parameters of the functions with a body
	bodies            [][]byte
}

// checkMetered verifies that a rewritten module has the original code plus charges, with a charge
// at the head of each function and each loop.
func checkMetered(t testing.TB, wasm, out []byte) {
	t.Helper()
	defer func() {
		if r := recover(); r != nil {
			t.Fatalf("%v in %x, originally %x", r, out, wasm)
		}
	}()
	before, after := read(wasm), read(out)
	if after.imported != before.imported+1 || after.globals != before.globals+1 || len(after.bodies) != len(before.bodies) {
		t.Fatalf("%d imported functions, %d globals and %d functions, originally %d, %d and %d",
			after.imported, after.globals, len(after.bodies), before.imported, before.globals, len(before.bodies))
	}
	for i := range before.bodies {
		checkBody(before.params[i], payment{count: before.globals, tick: before.imported}, before.bodies[i], after.bodies[i])
	}
}

func checkBody(params uint32, p payment, before, after []byte) {
	old, d := &decoder{b: before}, &decoder{b: after}
	groups := old.u32()
	if d.u32() != groups+1 {
		panic("the number of locals is wrong")
	}
	p.spare = params
	for range groups {
		n, kind := old.u32(), old.byte()
		if d.u32() != n || d.byte() != kind {
			panic("a local was changed")
		}
		p.spare += n
	}
	if d.u32() != 1 || d.byte() != 0x7f {
		panic("the spare local is missing")
	}
	renumber := func(f uint32) uint32 {
		if f >= p.tick {
			f++
		}
		return f
	}
	head := true
	for old.at < len(old.b) {
		paid, bulk := p.skip(d)
		if head && !paid {
			panic("a loop or a function does not pay")
		}
		for again := paid || bulk; again; { // two charges in a row
			more, length := p.skip(d)
			again, bulk = more || length, bulk || length
		}
		op, want := old.next(renumber)
		_, got := d.next(func(f uint32) uint32 { return f })
		if !bytes.Equal(want, got) {
			panic(fmt.Sprintf("%x became %x", want, got))
		}
		if isBulk := op == 0xfc && (want[1] == 8 || want[1] == 10 || want[1] == 11 || want[1] == 12 || want[1] == 14 || want[1] == 15 || want[1] == 17); isBulk != bulk {
			panic(fmt.Sprintf("%x is paid for by its length: %v", want, bulk))
		}
		head = op == 0x03
	}
	if d.at != len(d.b) {
		panic("code was added at the end")
	}
}

// read returns the contents of a module whose types are one byte long.
func read(wasm []byte) (c contents) {
	var types, functions []uint32
	for s, err := range abi.Sections(wasm) {
		if err != nil {
			panic(err)
		}
		d := &decoder{b: s.Body}
		switch s.ID {
		case 1:
			for n := d.u32(); n > 0; n-- {
				d.at++
				params := d.u32()
				d.at += int(params)
				d.at += int(d.u32())
				types = append(types, params)
			}
		case 2:
			for n := d.u32(); n > 0; n-- {
				d.at += int(d.u32())
				d.at += int(d.u32())
				switch d.byte() {
				case 0:
					c.imported++
					d.u32()
				case 1:
					d.at++
					d.limits()
				case 2:
					d.limits()
				case 3:
					d.at += 2
					c.globals++
				}
			}
		case 3:
			for n := d.u32(); n > 0; n-- {
				functions = append(functions, d.u32())
			}
		case 6:
			c.globals += d.u32()
		case 10:
			for n := d.u32(); n > 0; n-- {
				size := int(d.u32())
				c.bodies = append(c.bodies, d.b[d.at:d.at+size])
				d.at += size
			}
		}
	}
	for _, f := range functions {
		c.params = append(c.params, types[f])
	}
	return c
}

func (d *decoder) limits() {
	flags := d.byte()
	d.u32()
	if flags&1 != 0 {
		d.u32()
	}
}
