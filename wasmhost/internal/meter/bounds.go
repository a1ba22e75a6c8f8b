package meter

import (
	"errors"
	"fmt"
	"time"
)

// Bounds of a module, beside those of package binary. A runtime needs far more memory and time
// for it than it has bytes. The largest Go plugin, of 20 MB, is given for comparison.
const (
	maxTable           = 1 << 16 // elements of a table; 12,000
	maxGlobals         = 1 << 12 // 8
	maxDataSegments    = 1 << 17 // 100,000
	maxElementSegments = 1 << 10 // 1
	maxElements        = 1 << 16 // of all segments; 12,000
	maxDefinitions     = 1 << 26 // functions times exports and globals; 170,000. wazero compares each pair when a call first traps

	maxLocals    = 50_000  // of a function; 20
	maxAllLocals = 1 << 20 // of all functions; 49,000
	maxBody      = 1 << 19 // bytes of a function; 51,000
	maxLabels    = 1 << 16 // of a branch table; 1,144
	maxBlocks    = 20_000  // of a function, by weight; 4,300
	maxJoins     = 1 << 21 // of a function; 11,000
	maxValues    = 1 << 18 // passed by the calls and branches of a function; 4,000
	maxSlow      = 50_000  // instructions of a function that take many cycles; most have an exit to a trap
)

// A module may take as long to compile as minCompile and compilePerByte allow, by estimate. Those
// of Go take half a microsecond for each byte.
const (
	minCompile     = 3 * time.Second
	compilePerByte = 2 * time.Microsecond
)

// maxRewritten returns the length that a module may have when it is rewritten. Real ones become
// a tenth longer.
func maxRewritten(size int) int { return 2*size + 1<<20 }

// effort is what makes a function expensive to compile. The compiler needs memory in proportion
// to each number, and time as cost says.
type effort struct {
	blocks   uint64 // blocks that the compiler makes, as weights of what makes them
	joins    uint64 // where paths meet, as weights: each local may get a new value there
	values   uint64 // passed by calls and branches
	labels   uint64 // of branch tables
	indirect uint64 // calls
	slow     uint64 // instructions
}

// The weights of blocks and joins.
const (
	weightBlock  = 1
	weightBranch = 1
	weightBrIf   = 2
	weightIf     = 3
	weightBulk   = 3
	weightLoop   = 6
)

// add counts an instruction.
func (e *effort) add(in *instruction) {
	e.values += uint64(in.values)
	if in.cost >= costSlow {
		e.slow++
	}
	switch in.op {
	case opBlock:
		e.blocks += weightBlock
		e.joins += weightBlock
	case opIf:
		e.blocks += weightIf
		e.joins += weightBlock
	case opLoop:
		e.blocks += weightLoop
		e.joins += weightLoop
	case opBr:
		e.blocks += weightBranch
	case opBrIf:
		e.blocks += weightBrIf
	case opBrTable:
		e.blocks += uint64(len(in.labels))
		e.labels += uint64(len(in.labels))
	case opCallIndirect:
		e.blocks += weightBranch
		e.indirect++
	case opMisc:
		if in.bulk != 0 {
			e.blocks += weightBulk
		}
	}
}

// addPayment counts what is inserted into straight code. The weights of other instructions
// include it.
func (e *effort) addPayment() {
	e.blocks += weightIf
	e.joins += weightBlock
}

// check returns an error if a function with as many locals is too large to compile.
func (e *effort) check(locals uint64) error {
	switch {
	case e.blocks > maxBlocks:
		return tooLarge("blocks, loops and branches weigh %d", e.blocks, maxBlocks)
	case e.joins*locals > maxJoins:
		return tooLarge("locals times blocks and loops weigh %d", e.joins*locals, maxJoins)
	case e.values > maxValues:
		return tooLarge("calls and branches pass %d values", e.values, maxValues)
	case e.slow > maxSlow:
		return tooLarge("loads, stores, calls and divisions are %d", e.slow, maxSlow)
	}
	return nil
}

func tooLarge(format string, n, most uint64) error {
	return fmt.Errorf("too large to compile: its "+format+", at most %d are allowed: compile it with optimization, or split it", n, most)
}

// cost estimates the time for a function with as many locals that has passed check. It was
// measured with wazero 1.12 on a virtual machine of 2026.
func (e *effort) cost(bytes int, locals uint64) time.Duration {
	const (
		function = 12 * time.Microsecond
		squared  = 6 * time.Nanosecond // of blocks
		join     = time.Microsecond
		value    = time.Microsecond
		label    = 10 * time.Microsecond
		indirect = 30 * time.Microsecond
		byte     = 200 * time.Nanosecond
	)
	times := func(n uint64, d time.Duration) time.Duration { return time.Duration(n) * d }
	return function + times(uint64(bytes), byte) + times(e.blocks*e.blocks, squared) + times(e.joins*locals, join) +
		times(e.values, value) + times(e.labels, label) + times(e.indirect, indirect)
}

// defaultCost returns how long a module of a size may take to compile.
func defaultCost(size int) time.Duration { return minCompile + time.Duration(size)*compilePerByte }

// checkCost returns an error if a module takes too long to compile.
func checkCost(cost, most time.Duration) error {
	if cost > most {
		return fmt.Errorf("would take about %v to compile, %v are allowed: raise compile.time", cost.Round(time.Second), most.Round(time.Second))
	}
	return nil
}

var errRewritten = errors.New("becomes too large when it is metered: it has very many small functions or loops")
