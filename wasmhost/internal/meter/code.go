package meter

import (
	"fmt"

	"github.com/sonde-probe/sonde/wasmhost/internal/binary"
)

// maxStretch is how many cycles of code, by estimate, one unit pays for. Real ones are
// more where memory is not in a cache.
const maxStretch = 512

func (r *rewriter) codeSection(c *binary.Reader) []byte {
	n := c.Count(binary.MaxFunctions, 3)
	if c.Err() == nil && n != r.bodies {
		c.Fail(fmt.Errorf("%d functions have a type, and %d a body", r.bodies, n))
	}
	out := binary.AppendUint32(nil, n)
	var w walk
	for i := range c.Each(n) {
		body := c.Bytes(c.Uint32())
		index := r.imported + i
		if err := w.function(r, r.types[r.functions[index]], body); err != nil {
			c.Fail(fmt.Errorf("function %d: %w", index, err))
			break
		}
		out = append(binary.AppendUint32(out, uint32(len(w.out))), w.out...)
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
	c := binary.NewReader(body)
	w.locals(c, params)
	w.pay()
	for c.Err() == nil && len(w.frames) > 0 {
		at := c.Offset()
		in := r.instruction(c)
		if in.local >= w.spare && in.op >= opLocalGet && in.op <= opLocalTee {
			c.Fail(fmt.Errorf("there is no local %d", in.local))
		}
		if c.Err() != nil {
			break
		}
		w.before(&in)
		w.out = in.append(w.out, c.Since(at))
		w.after(c, &in)
	}
	return c.End()
}

// locals copies the declarations of locals, and adds the spare one.
func (w *walk) locals(c *binary.Reader, params uint32) {
	groups := c.Count(maxLocals, 2)
	w.out = binary.AppendUint32(w.out, groups+1)
	total := uint64(params)
	for range c.Each(groups) {
		n := c.Uint32()
		total += uint64(n)
		w.out = append(binary.AppendUint32(w.out, n), c.ValueType())
	}
	if total > maxLocals {
		c.Fail(fmt.Errorf("has %d parameters and locals, at most %d are allowed", total, maxLocals))
	}
	w.spare = uint32(total)
	w.out = append(w.out, 1, binary.I32)
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
func (w *walk) after(c *binary.Reader, in *instruction) {
	switch in.op {
	case opBlock, opLoop, opIf:
		if len(w.frames) >= maxNesting {
			c.Fail(fmt.Errorf("has more than %d nested blocks", maxNesting))
			return
		}
		w.frames = append(w.frames, frame{op: in.op, skip: w.stretch, from: !w.dead})
		if in.op == opLoop && !w.dead {
			w.pay()
		}
	case opElse:
		f := &w.frames[len(w.frames)-1]
		if f.op != opIf {
			c.Fail(fmt.Errorf("else without if"))
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
func (w *walk) branch(c *binary.Reader, label uint32) {
	if uint64(label) >= uint64(len(w.frames)) {
		c.Fail(fmt.Errorf("there is no label %d", label))
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
	w.out = binary.AppendUint32(append(w.out, opLocalTee), w.spare)
	w.out = w.getFuel(w.out)
	w.out = binary.AppendUint32(append(w.out, opLocalGet), w.spare)
	w.out = append(w.out, opI32Const, shift, opI32ShrU)
	w.take()
}

func (w *walk) getFuel(out []byte) []byte {
	return binary.AppendUint32(append(out, opGlobalGet), w.rewriter.globals)
}

// take inserts code that subtracts the number on top of the stack from the count below
// it, stores that, and calls Tick if it is below 0.
func (w *walk) take() {
	out := append(w.out, opI32Sub, opLocalTee)
	out = binary.AppendUint32(out, w.spare)
	out = binary.AppendUint32(append(out, opGlobalSet), w.rewriter.globals)
	out = binary.AppendUint32(append(out, opLocalGet), w.spare)
	out = append(out, opI32Const, 0, opI32LtS, opIf, 0x40, opCall) // 0x40: no result
	out = binary.AppendUint32(out, w.rewriter.imported)
	w.out = append(out, opEnd)
}
