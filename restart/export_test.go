package restart

// Exported for external tests of the package.
const DefaultMaxBackOff = defaultMaxBackOff

var (
	ErrNotDriven = errNotDriven
	ErrNotRun    = errNotRun
)
