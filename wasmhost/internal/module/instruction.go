package module

import (
	"errors"
	"fmt"
)

// The instructions that the rewriter treats specially (WebAssembly core specification 2, section 5.4).
const (
	opUnreachable       = 0x00
	opNop               = 0x01
	opBlock             = 0x02
	opLoop              = 0x03
	opIf                = 0x04
	opElse              = 0x05
	opEnd               = 0x0b
	opBr                = 0x0c
	opBrIf              = 0x0d
	opBrTable           = 0x0e
	opReturn            = 0x0f
	opCall              = 0x10
	opCallIndirect      = 0x11
	opDrop              = 0x1a
	opSelect            = 0x1b
	opSelectTyped       = 0x1c
	opLocalGet          = 0x20
	opLocalTee          = 0x22
	opGlobalGet         = 0x23
	opGlobalSet         = 0x24
	opTableSet          = 0x26
	opI32Load           = 0x28
	opI32Store          = 0x36
	opI64Store32        = 0x3e
	opMemorySize        = 0x3f
	opMemoryGrow        = 0x40
	opI32Const          = 0x41
	opI64Const          = 0x42
	opF32Const          = 0x43
	opF64Const          = 0x44
	opI32Eqz            = 0x45
	opI32LtS            = 0x48
	opI32Sub            = 0x6b
	opI32DivS           = 0x6d
	opI32RemU           = 0x70
	opI32ShrU           = 0x76
	opI64DivS           = 0x7f
	opI64RemU           = 0x82
	opF32Abs            = 0x8b
	opF64CopySign       = 0xa6
	opI32WrapI64        = 0xa7
	opF64ReinterpretI64 = 0xbf
	opI64Extend32S      = 0xc4
	opRefNull           = 0xd0
	opRefIsNull         = 0xd1
	opRefFunc           = 0xd2
	opMisc              = 0xfc // prefix of further instructions
	opVector            = 0xfd // prefix of vector instructions
)

// The further instructions of opMisc, and those of opVector that have operands.
const (
	miscMemoryInit = 8
	miscDataDrop   = 9
	miscMemoryCopy = 10
	miscMemoryFill = 11
	miscTableInit  = 12
	miscElemDrop   = 13
	miscTableCopy  = 14
	miscTableGrow  = 15
	miscTableSize  = 16
	miscTableFill  = 17

	vectorStore      = 11 // opcodes up to this one load or store
	vectorConst      = 12
	vectorShuffle    = 13
	vectorLane       = 21 // opcodes from here to vectorLaneLast have a lane operand
	vectorLaneLast   = 34
	vectorLoadLane   = 84 // opcodes from here to vectorStoreLane have an address and a lane
	vectorStoreLane  = 91
	vectorLoadZero   = 92
	vectorLoadZero64 = 93
)

// instruction is one decoded instruction.
type instruction struct {
	op       byte
	constant bool   // allowed in constant expressions
	cost     uint32 // estimated cycles
	bulk     byte   // log2 of the bytes or elements that a unit pays for, if their number is on top of the stack; 0 otherwise

	function    uint32 // the new index of the function that is called or referred to
	hasFunction bool
	local       uint32   // index of the local that is read or set
	label       uint32   // of a branch
	labels      []uint32 // of a branch table, without the default label
	block       signature
	values      uint32 // number of values passed; for branches they are added later
}

// append appends the instruction to out, with the new index of its function if it has one. Other
// instructions are copied from old, their original bytes.
func (i *instruction) append(out, old []byte) []byte {
	if i.hasFunction {
		return appendUint32(append(out, i.op), i.function)
	}
	return append(out, old...)
}

// Estimated costs of instructions in cycles. Most instructions take less than one cycle.
const (
	costSimple = 1
	costSlow   = 16  // division, conversion, stores
	costLoad   = 32  // the data may not be in a cache
	costCall   = 16  // the called function pays for itself
	costBulk   = 128 // in addition to the charge by length
	costHost   = 512 // it leaves the compiled code
)

// instruction reads one instruction.
func (r *rewriter) instruction(c *reader) (in instruction) {
	in.op, in.cost = c.byte(), costSimple
	switch op := in.op; {
	case op == opBlock, op == opLoop, op == opIf:
		in.block = r.blockType(c)
		in.values = in.block.values()
	case op == opBr, op == opBrIf:
		in.label = c.uint32()
	case op == opBrTable:
		in.labels = labels(c)
		in.label = c.uint32()
	case op == opCall, op == opRefFunc:
		f := r.function(c)
		in.function, in.hasFunction, in.cost = r.renumber(f), true, costCall
		if in.constant = op == opRefFunc; in.constant {
			in.cost = costHost
		} else if c.err == nil {
			in.values = r.types[r.functions[f]].values()
			in.cost += in.values
		}
	case op == opCallIndirect:
		if t := c.index(len(r.types), "type"); c.err == nil {
			in.values = r.types[t].values()
		}
		c.uint32()
		in.cost = costLoad + costCall + in.values
	case op == opSelectTyped:
		if c.byte() != 1 {
			c.fail(errors.New("select must have one type"))
		}
		c.valueType()
	case op == opGlobalGet, op == opGlobalSet:
		r.global(c)
		in.constant = op == opGlobalGet
	case op >= opLocalGet && op <= opLocalTee:
		in.local = c.uint32()
	case op > opGlobalSet && op <= opTableSet:
		c.uint32()
		in.cost = costLoad
		if op == opTableSet {
			r.noImage = changesTable
		}
	case op >= opI32Load && op <= opI64Store32:
		memoryArgument(c)
		if in.cost = costLoad; op >= opI32Store {
			in.cost = costSlow
		}
	case op == opMemorySize:
		zero(c)
	case op == opMemoryGrow:
		zero(c)
		in.cost = costHost
	case op >= opI32Const && op <= opF64Const, op == opRefNull:
		constant(c, op)
		in.constant = true
	case op == opMisc:
		r.misc(c, &in)
	case op == opVector:
		r.vector(c, &in)
	case op == opEnd:
		in.constant = true
	case op <= opNop, op == opElse, op == opReturn, op == opDrop, op == opSelect, op >= opI32Eqz && op <= opI64Extend32S, op == opRefIsNull:
		if isSlow(op) {
			in.cost = costSlow
		}
	default:
		c.fail(fmt.Errorf("instruction %#x is unknown, or beyond WebAssembly 2.0", op))
	}
	return in
}

// blockType reads the type of a block.
func (r *rewriter) blockType(c *reader) signature {
	switch t := c.blockType(len(r.types)); {
	case c.err != nil || t == noResult:
		return signature{}
	case t < 0:
		return signature{results: 1}
	default:
		return r.types[t].signature
	}
}

// isSlow reports whether an instruction without operands takes many cycles.
func isSlow(op byte) bool {
	switch {
	case op >= opI32DivS && op <= opI32RemU, op >= opI64DivS && op <= opI64RemU:
		return true
	case op >= opF32Abs && op <= opF64CopySign: // sqrt, div, min, max and rounding among them
		return true
	case op >= opI32WrapI64 && op <= opF64ReinterpretI64: // conversions
		return true
	}
	return false
}

// labels reads the labels of a branch table, except the last (default) one.
func labels(c *reader) (all []uint32) {
	for range c.each(c.count(maxLabels, 1)) {
		all = append(all, c.uint32())
	}
	return all
}

// constant reads the operand of opRefNull or an instruction from opI32Const to opF64Const.
func constant(c *reader, op byte) {
	switch op {
	case opI32Const:
		c.signed(5)
	case opI64Const:
		c.signed(10)
	case opF32Const:
		c.bytes(4)
	case opF64Const:
		c.bytes(8)
	case opRefNull:
		c.refType()
	}
}

func memoryArgument(c *reader) {
	c.uint32()
	c.uint32()
}

// zero reads a byte that must be 0. A runtime may skip it without checking.
func zero(c *reader) byte {
	b := c.byte()
	if b != 0 {
		c.fail(fmt.Errorf("byte %#x where WebAssembly 2.0 has only 0", b))
	}
	return b
}

// changesTable is the noImage text of instructions that modify a table.
const changesTable = "changes a table"

func (r *rewriter) misc(c *reader, in *instruction) {
	const bytes, elements = 6, 3 // log2 of the number that a unit pays for
	switch op := c.byte(); op {
	case 0, 1, 2, 3, 4, 5, 6, 7: // conversions
		in.cost = costSlow
	case miscMemoryInit:
		c.uint32()
		zero(c)
		in.bulk, in.cost = bytes, costBulk
	case miscMemoryCopy:
		zero(c)
		zero(c)
		in.bulk, in.cost = bytes, costBulk
	case miscMemoryFill:
		zero(c)
		in.bulk, in.cost = bytes, costBulk
	case miscTableInit, miscTableCopy:
		c.uint32()
		c.uint32()
		in.bulk, in.cost, r.noImage = elements, costBulk, changesTable
	case miscTableGrow, miscTableFill:
		c.uint32()
		in.bulk, in.cost, r.noImage = elements, costHost, changesTable
	case miscDataDrop, miscElemDrop, miscTableSize:
		c.uint32()
	default:
		c.fail(fmt.Errorf("instruction %#x %#x is unknown, or beyond WebAssembly 2.0", in.op, op))
	}
}

// vector reads an instruction with the prefix opVector. Its opcode must be in the shortest
// encoding: wazero reads one byte only, and would execute the second byte, which is 1, as a nop.
func (r *rewriter) vector(c *reader, in *instruction) {
	op := c.byte()
	if op >= 0x80 && c.byte() != 1 {
		c.fail(fmt.Errorf("instruction %#x %#x is beyond WebAssembly 2.0, or not in the shortest encoding", in.op, op))
	}
	switch {
	case op <= vectorStore, op == vectorLoadZero, op == vectorLoadZero64:
		memoryArgument(c)
		in.cost = costLoad
	case op == vectorConst:
		c.bytes(16)
		in.constant = true
	case op == vectorShuffle:
		c.bytes(16)
	case op >= vectorLane && op <= vectorLaneLast:
		c.byte()
	case op >= vectorLoadLane && op <= vectorStoreLane:
		memoryArgument(c)
		c.byte()
		in.cost = costLoad
	default:
		in.cost = costSlow
	}
}
