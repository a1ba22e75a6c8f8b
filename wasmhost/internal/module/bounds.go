package module

import "errors"

// Bounds of a module, in addition to those of its sections. A runtime needs memory and time far beyond the
// size of a module, even to load compiled code. The second numbers are those of the largest Go plugin, of
// 20 MB. The compiler is bounded where it runs.
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
	maxValues    = 1 << 18 // passed by the calls and branches of a function, which a runtime checks one by one; 4,000
)

// maxRewritten returns the maximum size of a rewritten module. Real modules grow by a tenth.
func maxRewritten(size int) int { return 2*size + 1<<20 }

var errRewritten = errors.New("too large after metering: it has too many small functions or loops")
