package restart

// What tests of the package from outside need.
const DefaultMaxBackOff = defaultMaxBackOff

var (
	ErrNotDriven = errNotDriven
	ErrNotRun    = errNotRun
)
