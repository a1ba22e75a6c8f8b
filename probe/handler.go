package probe

import "context"

// A Handler makes one attempt at a target.
//
// Probe must return soon after ctx is done. Ctx carries the deadline that
// Rule.Timeout sets; a deadline that passes before the target has answered is a
// Failure, since it is the target that was late. Only an attempt that could not be
// made at all is Unknown. Probe is called from many goroutines at once.
type Handler interface {
	Probe(ctx context.Context, t Target) Result
}

// HandlerFunc adapts a function to a Handler.
type HandlerFunc func(ctx context.Context, t Target) Result

// Probe calls f.
func (f HandlerFunc) Probe(ctx context.Context, t Target) Result { return f(ctx, t) }
