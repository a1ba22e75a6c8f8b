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

// A WakingHandler learns between two attempts that the next one should not wait
// for its turn: that a connection which it keeps has ended, say.
type WakingHandler interface {
	Handler

	// ProbeWaking is called instead of Probe. Wake asks for another attempt of
	// the same probe as soon as it may be made. It may be called at any time,
	// also after the attempt and when the probe is gone, by many goroutines at
	// once, and returns at once.
	ProbeWaking(ctx context.Context, t Target, wake func()) Result
}

// A StatefulHandler keeps state between the attempts of one probe: a connection,
// say. Several probes may be configured with the same handler, and must not share
// its state.
type StatefulHandler interface {
	Handler

	// ForProbe returns a Handler with the same configuration and no state. The
	// engine calls it once for each probe that it adds or whose handler or target
	// changes, makes that probe's attempts with the result only, and closes the
	// result, if it is an io.Closer, when the probe no longer has it.
	ForProbe() Handler
}

// A PreparingHandler cannot make attempts from the beginning: a plugin is compiled
// first, say. Until Ready is closed the engine does not call it, and shows that.
type PreparingHandler interface {
	Handler

	// Ready returns the same channel each time, which is closed when the handler
	// can make attempts, or never will and says so in its results.
	Ready() <-chan struct{}
}

// HandlerFunc adapts a function to a Handler.
type HandlerFunc func(ctx context.Context, t Target) Result

// Probe calls f.
func (f HandlerFunc) Probe(ctx context.Context, t Target) Result { return f(ctx, t) }
