package meter

import (
	"errors"
	"fmt"

	"github.com/sonde-probe/sonde/wasmhost/abi"
)

// The instructions that this package treats specially (WebAssembly core specification 2,
// section 5.4).
const (
	opUnreachable  = 0x00
	opBlock        = 0x02
	opLoop         = 0x03
	opIf           = 0x04
	opElse         = 0x05
	opEnd          = 0x0b
	opBr           = 0x0c
	opBrIf         = 0x0d
	opBrTable      = 0x0e
	opReturn       = 0x0f
	opCall         = 0x10
	opCallIndirect = 0x11
	opDrop         = 0x1a
	opSelect       = 0x1b
	opSelectTyped  = 0x1c
	opLocalGet     = 0x20
	opLocalTee     = 0x22
	opGlobalGet    = 0x23
	opGlobalSet    = 0x24
	opTableSet     = 0x26
	opI32Load      = 0x28
	opI64Store32   = 0x3e
	opMemorySize   = 0x3f
	opMemoryGrow   = 0x40
	opI32Const     = 0x41
	opI64Const     = 0x42
	opF32Const     = 0x43
	opF64Const     = 0x44
	opI32Eqz       = 0x45
	opI32LtS       = 0x48
	opI32Sub       = 0x6b
	opI32ShrU      = 0x76
	opI64Extend32S = 0xc4
	opRefNull      = 0xd0
	opRefIsNull    = 0xd1
	opRefFunc      = 0xd2
	opMisc         = 0xfc // the prefix of further instructions
	opVector       = 0xfd // likewise
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

	vectorStore      = 11 // those up to here load or store
	vectorConst      = 12
	vectorShuffle    = 13
	vectorLane       = 21 // those from here to vectorLaneLast have a lane
	vectorLaneLast   = 34
	vectorLoadLane   = 84 // those from here to vectorStoreLane have an address and a lane
	vectorStoreLane  = 91
	vectorLoadZero   = 92
	vectorLoadZero64 = 93
)

// instruction is what the rewriter has to know of one.
type instruction struct {
	op       byte
	constant bool   // it is allowed in constant expressions
	cost     uint32 // in cycles, by estimate
	bulk     byte   // it handles as many bytes or elements as the operand on top of the stack says: log2 of those a unit pays for; 0 for other instructions

	function    uint32 // the new index of the function that it calls or refers to
	hasFunction bool
	local       uint32   // that it reads or sets
	label       uint32   // of a branch
	labels      []uint32 // of a branch table, besides label
}

// append appends the instruction to out, with the new index of its function. Other
// instructions are copied: old has their bytes.
func (i *instruction) append(out, old []byte) []byte {
	if i.hasFunction {
		return abi.AppendUint32(append(out, i.op), i.function)
	}
	return append(out, old...)
}

// Estimates of an instruction's cost in cycles. Most take less than one.
const (
	costSimple = 1
	costMemory = 4  // a cache miss takes longer
	costSlow   = 16 // division, square root
	costCall   = 16
)

// instruction reads one instruction.
func (r *rewriter) instruction(c *cursor) (in instruction) {
	in.op, in.cost = c.byte(), costSimple
	switch op := in.op; {
	case op == opBlock, op == opLoop, op == opIf:
		r.blockType(c)
	case op == opBr, op == opBrIf:
		in.label = c.uint32()
	case op == opBrTable:
		in.labels = c.labels()
		in.label = c.uint32()
	case op == opCall, op == opRefFunc:
		in.function, in.hasFunction, in.cost = r.function(c), true, costCall
		in.constant = op == opRefFunc
	case op == opCallIndirect:
		c.index(len(r.types), "type")
		c.uint32()
		in.cost = costCall
	case op == opSelectTyped:
		if c.byte() != 1 {
			c.fail(errors.New("select must have one type"))
		}
		c.byte()
	case op == opGlobalGet, op == opGlobalSet:
		r.global(c)
		in.constant = op == opGlobalGet
	case op >= opLocalGet && op <= opLocalTee:
		in.local = c.uint32()
	case op > opGlobalSet && op <= opTableSet:
		c.uint32()
	case op >= opI32Load && op <= opI64Store32:
		c.memoryArgument()
		in.cost = costMemory
	case op >= opMemorySize && op <= opF64Const, op == opRefNull:
		in.constant = op > opMemoryGrow
		c.immediate(op)
	case op == opMisc:
		r.misc(c, &in)
	case op == opVector:
		r.vector(c, &in)
	case op == opEnd:
		in.constant = true
	case op <= 0x01, op == opElse, op == opReturn, op == opDrop, op == opSelect, op >= opI32Eqz && op <= opI64Extend32S, op == opRefIsNull:
		if isSlow(op) {
			in.cost = costSlow
		}
	default:
		c.fail(fmt.Errorf("instruction %#x is unknown, or beyond WebAssembly 2.0", op))
	}
	return in
}

// isSlow reports whether an instruction without operands divides, or takes a root.
func isSlow(op byte) bool {
	switch {
	case op >= 0x6d && op <= 0x70, op >= 0x7f && op <= 0x82: // div and rem of i32 and i64
		return true
	case op == 0x91, op == 0x95, op == 0x9f, op == 0xa3: // sqrt and div of f32 and f64
		return true
	}
	return false
}

// blockType reads the type of a block: a type of a value, none, or the index of a type.
func (r *rewriter) blockType(c *cursor) {
	if n := c.signed(5); n >= int64(len(r.types)) {
		c.fail(fmt.Errorf("there is no type %d", n))
	}
}

// labels reads the labels of a branch table except the last.
func (c *cursor) labels() []uint32 {
	n := c.uint32()
	if uint64(n) > maxLabels {
		c.fail(fmt.Errorf("branch table of %d labels, at most %d are allowed", n, maxLabels))
	}
	var all []uint32
	for range c.count(n, 1) {
		all = append(all, c.uint32())
	}
	return all
}

func (c *cursor) memoryArgument() {
	c.uint32()
	c.uint32()
}

// immediate reads the operand of an instruction that has one.
func (c *cursor) immediate(op byte) {
	switch op {
	case opMemorySize, opMemoryGrow:
		c.zero()
	case opI32Const:
		c.signed(5)
	case opI64Const:
		c.signed(10)
	case opF32Const:
		c.skip(4)
	case opF64Const:
		c.skip(8)
	case opRefNull:
		c.byte()
	}
}

// zero reads a byte that must be 0. A runtime may skip it without a look.
func (c *cursor) zero() {
	if c.byte() != 0 {
		c.fail(errors.New("only memory 0 is supported"))
	}
}

func (r *rewriter) misc(c *cursor, in *instruction) {
	const bytes, elements = 8, 5 // log2
	switch op := c.byte(); op {
	case 0, 1, 2, 3, 4, 5, 6, 7: // conversions
	case miscMemoryInit:
		c.uint32()
		c.zero()
		in.bulk = bytes
	case miscMemoryCopy:
		c.zero()
		c.zero()
		in.bulk = bytes
	case miscMemoryFill:
		c.zero()
		in.bulk = bytes
	case miscTableInit, miscTableCopy:
		c.uint32()
		c.uint32()
		in.bulk = elements
	case miscTableGrow, miscTableFill:
		c.uint32()
		in.bulk = elements
	case miscDataDrop, miscElemDrop, miscTableSize:
		c.uint32()
	default:
		c.fail(fmt.Errorf("instruction %#x %#x is unknown, or beyond WebAssembly 2.0", in.op, op))
	}
}

// vector reads an instruction of opVector. Its number must be in the shortest encoding:
// wazero reads one byte only, and takes the second one, which is then 1, for a nop.
func (r *rewriter) vector(c *cursor, in *instruction) {
	op := c.byte()
	if op >= 0x80 && c.byte() != 1 {
		c.fail(fmt.Errorf("instruction %#x %#x is beyond WebAssembly 2.0, or not in the shortest encoding", in.op, op))
	}
	switch {
	case op <= vectorStore, op == vectorLoadZero, op == vectorLoadZero64:
		c.memoryArgument()
		in.cost = costMemory
	case op == vectorConst:
		c.skip(16)
		in.constant = true
	case op == vectorShuffle:
		c.skip(16)
	case op >= vectorLane && op <= vectorLaneLast:
		c.byte()
	case op >= vectorLoadLane && op <= vectorStoreLane:
		c.memoryArgument()
		c.byte()
		in.cost = costMemory
	default:
		in.cost = costMemory
	}
}
