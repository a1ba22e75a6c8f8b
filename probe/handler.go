package probe

import "context"

// A Handler makes one attempt at a target.
//
// Probe must return soon after ctx is done. Ctx has the deadline that Rule.Timeout
// sets. If the target has not answered by then, the outcome is Failure; Unknown is
// for an attempt that could not be made. Probe must be safe for concurrent use by
// multiple goroutines.
type Handler interface {
	Probe(ctx context.Context, t Target) Result
}

// A WakingHandler can ask for an attempt between two regular ones, for example when a
// connection that it keeps has ended.
type WakingHandler interface {
	Handler

	// ProbeWaking is called instead of Probe. Wake asks for another attempt of the
	// same probe as soon as the engine allows one. It does not block, and is safe
	// for concurrent use by multiple goroutines. It may be called at any time, even
	// after the attempt has ended or the probe was removed.
	ProbeWaking(ctx context.Context, t Target, wake func()) Result
}

// A StatefulHandler keeps state between the attempts of a probe, for example a
// connection. Several probes may be configured with the same handler; each gets a
// handler of its own, so that they do not share its state.
type StatefulHandler interface {
	Handler

	// ForProbe returns a Handler with the same configuration and no state. The
	// engine calls it once for each probe that it adds or whose handler or target
	// changes. It makes the probe's attempts with the returned handler only, and
	// closes that, if it is an io.Closer, when the probe no longer needs it.
	ForProbe() Handler
}

// An EndpointHandler knows where it connects. When a handler or a target is replaced and
// the endpoint is another one, nothing that was published is known to be true there, and
// readiness is undecided. Of other handlers the engine compares the target's address and
// ports.
type EndpointHandler interface {
	Handler

	// Endpoint returns the endpoint for a target: host and port as net.JoinHostPort joins
	// them, such as "10.0.0.7:80", or the path of a unix socket; "" if the target lacks its
	// address or port. The host says which network the attempts need: see
	// engine.Config.NoIsolationCheck.
	Endpoint(t Target) string
}

// A PreparingHandler is a handler that needs time before its first attempt, for example
// to compile a plugin. The engine does not call it until the channel of Ready is closed;
// until then the probe's wait reason is "preparing".
type PreparingHandler interface {
	Handler

	// Ready returns the same channel each time. It is closed when the handler can
	// make attempts, or has failed to become ready and returns that as its results.
	Ready() <-chan struct{}
}

// HandlerFunc adapts a function to a Handler.
type HandlerFunc func(ctx context.Context, t Target) Result

// Probe calls f.
func (f HandlerFunc) Probe(ctx context.Context, t Target) Result { return f(ctx, t) }
