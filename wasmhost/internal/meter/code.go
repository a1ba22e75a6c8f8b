package meter

import (
	"fmt"

	"github.com/sonde-probe/sonde/wasmhost/abi"
)

// Limits of the code of a function.
const (
	maxNesting = 1 << 16 // blocks in blocks
	maxLocals  = 50_000  // as wazero
	maxLabels  = 1 << 16 // of a branch table
)

// maxStretch is how many cycles of code, by estimate, one unit pays for. Real ones are
// more where memory is not in a cache.
const maxStretch = 512

func (r *rewriter) codeSection(c *cursor) []byte {
	n := c.uint32()
	if n != r.bodies {
		c.fail(fmt.Errorf("%d functions have a type, and %d a body", r.bodies, n))
	}
	out := abi.AppendUint32(make([]byte, 0, len(c.b)+len(c.b)/4), n)
	var w walk
	for i := range c.count(n, 3) {
		body := c.bytes(c.uint32())
		index := r.imported + i
		if err := w.function(r, r.types[r.functions[index]], body); err != nil {
			c.fail(fmt.Errorf("function %d: %w", index, err))
			break
		}
		out = append(abi.AppendUint32(out, uint32(len(w.out))), w.out...)
	}
	return out
}

// walk copies the body of a function and inserts what meters it. It is used again for
// each function, for its memory.
type walk struct {
	rewriter *rewriter
	out      []byte
	spare    uint32  // a local that the inserted code uses
	frames   []frame // of the blocks around the current instruction, the function's first
	stretch  uint32  // the most cycles since the latest payment, on all paths that lead here
	dead     bool    // no path leads here
}

// frame is a block, a loop, one branch of an if, or the body of a function.
type frame struct {
	op   byte
	end  uint32 // the most cycles since the latest payment, on all paths that branch to its end
	live bool   // such a path exists
	skip uint32 // likewise, where an if begins: the path that skips it
	from bool   // the if could be reached
}

// function sets w.out to the new body of a function.
func (w *walk) function(r *rewriter, params uint32, body []byte) error {
	*w = walk{rewriter: r, out: w.out[:0], frames: append(w.frames[:0], frame{op: opBlock})}
	c := &cursor{b: body}
	w.locals(c, params)
	w.pay()
	for c.err == nil && len(w.frames) > 0 {
		at := c.at
		in := r.instruction(c)
		if in.local >= w.spare && in.op >= opLocalGet && in.op <= opLocalTee {
			c.fail(fmt.Errorf("there is no local %d", in.local))
		}
		if c.err != nil {
			break
		}
		w.before(&in)
		w.out = in.append(w.out, c.b[at:c.at])
		w.after(c, &in)
	}
	return c.end()
}

// locals copies the declarations of locals, and adds the spare one.
func (w *walk) locals(c *cursor, params uint32) {
	groups := c.uint32()
	w.out = abi.AppendUint32(w.out, groups+1)
	total := uint64(params)
	for range c.count(groups, 2) {
		n := c.uint32()
		total += uint64(n)
		w.out = append(abi.AppendUint32(w.out, n), c.byte())
	}
	if total > maxLocals {
		c.fail(fmt.Errorf("has %d parameters and locals, at most %d are allowed", total, maxLocals))
	}
	w.spare = uint32(total)
	w.out = append(w.out, 1, 0x7f) // one i32
}

// before inserts what must be paid before an instruction.
func (w *walk) before(in *instruction) {
	if w.dead {
		return
	}
	if in.bulk != 0 {
		w.payBulk(in.bulk)
	}
	if w.stretch += in.cost; w.stretch > maxStretch {
		w.pay()
	}
}

// after follows the paths of control, and inserts what is paid at the head of a loop.
func (w *walk) after(c *cursor, in *instruction) {
	switch in.op {
	case opBlock, opLoop, opIf:
		if len(w.frames) >= maxNesting {
			c.fail(fmt.Errorf("has more than %d nested blocks", maxNesting))
			return
		}
		w.frames = append(w.frames, frame{op: in.op, skip: w.stretch, from: !w.dead})
		if in.op == opLoop && !w.dead {
			w.pay()
		}
	case opElse:
		f := &w.frames[len(w.frames)-1]
		if f.op != opIf {
			c.fail(fmt.Errorf("else without if"))
			return
		}
		w.reach(f)
		f.op, w.stretch, w.dead = opElse, f.skip, !f.from
	case opEnd:
		f := &w.frames[len(w.frames)-1]
		w.reach(f)
		if f.op == opIf && f.from {
			f.end, f.live = max(f.end, f.skip), true
		}
		w.stretch, w.dead = f.end, !f.live
		w.frames = w.frames[:len(w.frames)-1]
	case opBr, opBrIf, opBrTable:
		for _, label := range in.labels {
			w.branch(c, label)
		}
		w.branch(c, in.label)
		w.dead = w.dead || in.op != opBrIf
	case opReturn, opUnreachable:
		w.dead = true
	}
}

// branch notes a path to a label.
func (w *walk) branch(c *cursor, label uint32) {
	if uint64(label) >= uint64(len(w.frames)) {
		c.fail(fmt.Errorf("there is no label %d", label))
		return
	}
	if f := &w.frames[len(w.frames)-1-int(label)]; f.op != opLoop { // at its head it pays
		w.reach(f)
	}
}

// reach notes that the current path reaches the end of f.
func (w *walk) reach(f *frame) {
	if !w.dead {
		f.end, f.live = max(f.end, w.stretch), true
	}
}

// pay inserts code that takes one unit.
func (w *walk) pay() {
	w.stretch = 0
	w.out = w.getFuel(w.out)
	w.out = append(w.out, opI32Const, 1)
	w.take()
}

// payBulk inserts code that takes a unit for every 1<<shift of the number on top of the
// stack, and leaves the number there.
func (w *walk) payBulk(shift byte) {
	w.out = abi.AppendUint32(append(w.out, opLocalTee), w.spare)
	w.out = w.getFuel(w.out)
	w.out = abi.AppendUint32(append(w.out, opLocalGet), w.spare)
	w.out = append(w.out, opI32Const, shift, opI32ShrU)
	w.take()
}

func (w *walk) getFuel(out []byte) []byte {
	return abi.AppendUint32(append(out, opGlobalGet), w.rewriter.globals)
}

// take inserts code that subtracts the number on top of the stack from the count below
// it, stores that, and calls Tick if it is below 0.
func (w *walk) take() {
	out := append(w.out, opI32Sub, opLocalTee)
	out = abi.AppendUint32(out, w.spare)
	out = abi.AppendUint32(append(out, opGlobalSet), w.rewriter.globals)
	out = abi.AppendUint32(append(out, opLocalGet), w.spare)
	out = append(out, opI32Const, 0, opI32LtS, opIf, 0x40, opCall) // 0x40: no result
	out = abi.AppendUint32(out, w.rewriter.imported)
	w.out = append(out, opEnd)
}
