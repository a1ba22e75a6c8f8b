package wasmhost

import (
	"context"

	"github.com/tetratelabs/wazero"
	"github.com/tetratelabs/wazero/api"
)

// guard runs guests so that they can be stopped. It is the one place that knows
// how that is done.
type guard interface {
	// configure makes a runtime whose code can be stopped.
	configure(c wazero.RuntimeConfig) wazero.RuntimeConfig

	// call runs a function and returns when it has, or soon after ctx is done,
	// with an error. Arguments and results are in stack.
	call(ctx context.Context, f api.Function, stack []uint64) error
}

// closing is the guard that wazero offers: it looks at ctx wherever a loop begins
// and closes the instance. Loops are some 10 times slower by it, and code without loops
// is not stopped.
type closing struct{}

func (closing) configure(c wazero.RuntimeConfig) wazero.RuntimeConfig {
	return c.WithCloseOnContextDone(true)
}

func (closing) call(ctx context.Context, f api.Function, stack []uint64) error {
	return f.CallWithStack(ctx, stack)
}
