package meter

// Bounds of a module, beside those of package binary. A runtime needs far more memory and time
// for it than it has bytes.
const (
	maxTable    = 1 << 16 // elements of a table; the largest Go plugins have some 30,000
	maxGlobals  = 1 << 16
	maxSegments = 1 << 17 // of elements or data; Go makes up to 100,000
	maxElements = 1 << 20 // of a segment
	maxNesting  = 1 << 16 // blocks in blocks
	maxLocals   = 50_000  // of a function
	maxLabels   = 1 << 16 // of a branch table
)
