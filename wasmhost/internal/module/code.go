package module

import (
	"fmt"
)

// unit is the estimated number of cycles of code that one unit of fuel pays for. The real number is
// up to fifty times as high if memory is not in a cache.
const unit = 16

// maxUncharged is the estimated number of cycles of straight-line code after which a charge is
// inserted.
const maxUncharged = 512

// units returns the number of units that pay for cycles, at least one.
func units(cycles uint32) uint32 { return 1 + cycles/unit }

func (r *rewriter) codeSection(c *reader) []byte {
	n := c.count(maxFunctions, 3)
	if own := uint32(len(r.functions)) - r.imported; c.err == nil && n != own {
		c.fail(fmt.Errorf("%d functions are declared, but %d have a body", own, n))
	}
	out := appendUint32(nil, n)
	var w bodyRewriter
	var locals uint64
	for i := range c.each(n) {
		body := c.bytes(c.uint32())
		index := r.imported + i
		err := w.function(r, r.types[r.functions[index]].signature, body)
		if locals += uint64(w.scratch); err == nil && locals > maxAllLocals {
			err = fmt.Errorf("all functions together have more than %d locals", maxAllLocals)
		}
		if err != nil {
			c.fail(fmt.Errorf("function %d: %w", index, err))
			break
		}
		if r.noImage != "" {
			r.rejectImage("function %d %s", index, r.noImage)
		}
		if out = append(appendUint32(out, uint32(len(w.out))), w.out...); len(out) > maxRewritten(r.size) {
			c.fail(errRewritten)
		}
	}
	return out
}

// bodyRewriter copies the body of a function and inserts the metering code. It treats unreachable
// code like any other. It is reused for each function to reuse its memory.
type bodyRewriter struct {
	rewriter  *rewriter
	out       []byte
	entry     int     // offset in out of the charge at the function's entry
	scratch   uint32  // index of a local for the inserted code
	frames    []frame // the blocks around the current instruction, outermost first
	uncharged uint32  // maximum of cycles since the latest charge, over all paths to this point
	values    uint64  // number of values passed by calls and branches
}

// frame is a block, a loop, one branch of an if, or the body of a function.
type frame struct {
	op      byte
	pass    uint32 // number of values that a branch to it passes
	end     uint32 // maximum of cycles since the latest charge, over all branches to its end
	skipped uint32 // of an if: cycles since the latest charge on the path that skips it
	head    int    // of a loop: offset in out of its charge
	back    uint32 // maximum of cycles since the latest charge, over all paths to its head
}

// function sets w.out to the new body of a function.
func (w *bodyRewriter) function(r *rewriter, t signature, body []byte) error {
	*w = bodyRewriter{rewriter: r, out: w.out[:0], frames: append(w.frames[:0], frame{op: opBlock, pass: t.results})}
	c := newReader(body)
	if len(body) > maxBody {
		return fmt.Errorf("%d bytes, at most %d are allowed", len(body), maxBody)
	}
	w.locals(c, t.params)
	w.entry = w.emitCharge(0)
	for c.err == nil && len(w.frames) > 0 {
		at := c.offset()
		in := r.instruction(c)
		if in.local >= w.scratch && in.op >= opLocalGet && in.op <= opLocalTee {
			c.fail(fmt.Errorf("there is no local %d", in.local))
		}
		if c.err != nil {
			break
		}
		w.before(&in)
		w.out = in.append(w.out, c.since(at))
		w.after(c, &in)
		if w.values += uint64(in.values); w.values > maxValues {
			c.fail(fmt.Errorf("calls and branches pass more than %d values", maxValues))
		}
		if in.op == opRefFunc {
			r.noImage = "makes a reference to a function"
		}
	}
	return c.end()
}

// locals copies the declarations of locals and adds the scratch local.
func (w *bodyRewriter) locals(c *reader, params uint32) {
	groups := c.count(maxLocals, 2)
	w.out = appendUint32(w.out, groups+1)
	total := uint64(params)
	for range c.each(groups) {
		n := c.uint32()
		total += uint64(n)
		w.out = append(appendUint32(w.out, n), c.valueType())
	}
	if total > maxLocals {
		c.fail(fmt.Errorf("%d parameters and locals, at most %d are allowed", total, maxLocals))
	}
	w.scratch = uint32(total)
	w.out = append(w.out, 1, typeI32)
}

// before inserts the charges that must precede an instruction.
func (w *bodyRewriter) before(in *instruction) {
	if in.bulk != 0 {
		w.emitBulkCharge(in.bulk)
	}
	if w.uncharged += in.cost; w.uncharged > maxUncharged {
		w.emitCharge(units(w.uncharged))
	}
}

// after updates the control flow after an instruction, and inserts the charge at the head of a
// loop.
func (w *bodyRewriter) after(c *reader, in *instruction) {
	switch in.op {
	case opBlock, opLoop, opIf:
		f := frame{op: in.op, pass: in.block.results, skipped: w.uncharged}
		if in.op == opLoop {
			f.pass, f.back = in.block.params, w.uncharged
			f.head = w.emitCharge(0)
		}
		w.frames = append(w.frames, f)
	case opElse:
		f := &w.frames[len(w.frames)-1]
		if f.op != opIf {
			c.fail(fmt.Errorf("else without if"))
			return
		}
		f.end = max(f.end, w.uncharged)
		f.op, w.uncharged = opElse, f.skipped
	case opEnd:
		f := &w.frames[len(w.frames)-1]
		w.uncharged = max(w.uncharged, f.end)
		switch f.op {
		case opIf:
			w.uncharged = max(w.uncharged, f.skipped)
		case opLoop:
			w.setCharge(f.head, units(f.back))
		}
		if w.frames = w.frames[:len(w.frames)-1]; len(w.frames) == 0 {
			w.setCharge(w.entry, units(w.scratch+w.uncharged)) // for its locals, and for the cycles that are uncharged at its end
		}
	case opBr, opBrIf, opBrTable:
		for _, label := range in.labels {
			in.values += w.branch(c, label)
		}
		in.values += w.branch(c, in.label)
	case opReturn:
		w.frames[0].end = max(w.frames[0].end, w.uncharged)
	}
}

// branch records a path to a label, and returns the number of values that it passes.
func (w *bodyRewriter) branch(c *reader, label uint32) uint32 {
	if uint64(label) >= uint64(len(w.frames)) {
		c.fail(fmt.Errorf("there is no label %d", label))
		return 0
	}
	f := &w.frames[len(w.frames)-1-int(label)]
	cycles := w.uncharged + f.pass
	if f.op == opLoop {
		f.back = max(f.back, cycles)
	} else {
		f.end = max(f.end, cycles)
	}
	return f.pass
}

// emitCharge inserts code that subtracts a number of units, and returns the offset of that number
// in out.
func (w *bodyRewriter) emitCharge(units uint32) (at int) {
	w.uncharged = 0
	w.out = append(w.emitCount(w.out), opI32Const, 0, 0)
	at = len(w.out) - 2
	w.setCharge(at, units)
	w.emitDeduction()
	return at
}

// setCharge sets the number of units that the code at an offset subtracts. The number is below 8192
// and always takes two bytes of signed LEB128.
func (w *bodyRewriter) setCharge(at int, units uint32) {
	w.out[at], w.out[at+1] = byte(units)|0x80, byte(units>>7)
}

// emitBulkCharge inserts code that subtracts one unit for every 1<<shift of the number on top of
// the stack, and leaves the number there.
func (w *bodyRewriter) emitBulkCharge(shift byte) {
	w.out = appendUint32(append(w.out, opLocalTee), w.scratch)
	w.out = w.emitCount(w.out)
	w.out = appendUint32(append(w.out, opLocalGet), w.scratch)
	w.out = append(w.out, opI32Const, shift, opI32ShrU)
	w.emitDeduction()
}

// emitCount appends code that pushes the count.
func (w *bodyRewriter) emitCount(out []byte) []byte {
	return appendUint32(append(out, opGlobalGet), w.rewriter.globals)
}

// emitDeduction inserts code that subtracts the number on top of the stack from the count below it,
// stores the new count, and calls Tick if it is negative.
func (w *bodyRewriter) emitDeduction() {
	out := append(w.out, opI32Sub, opLocalTee)
	out = appendUint32(out, w.scratch)
	out = appendUint32(append(out, opGlobalSet), w.rewriter.globals)
	out = appendUint32(append(out, opLocalGet), w.scratch)
	out = append(out, opI32Const, 0, opI32LtS, opIf, emptyBlock, opCall)
	out = appendUint32(out, w.rewriter.imported)
	w.out = append(out, opEnd)
}
