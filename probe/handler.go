package probe

import "context"

// A Handler makes one attempt at a target.
//
// Probe must return soon after ctx is done. ctx has the deadline that Rule.Timeout sets. If the target has not responded by then,
// the outcome is Failure; Unknown means that the attempt could not be made. Probe must be safe for concurrent use by multiple
// goroutines.
type Handler interface {
	Probe(ctx context.Context, t Target) Result
}

// A WakingHandler can request an attempt between two regular ones, for example after a connection that it keeps was closed.
type WakingHandler interface {
	Handler

	// ProbeWaking is called instead of Probe. wake requests another attempt of the same probe as soon as the engine allows one.
	// wake does not block, is safe for concurrent use by multiple goroutines, and may be called at any time, even after the
	// attempt has finished or the probe was removed.
	ProbeWaking(ctx context.Context, t Target, wake func()) Result
}

// A StatefulHandler keeps state between the attempts of a probe, for example a connection. Several probes may be configured with
// the same handler; the engine creates a handler for each, so that they do not share state.
type StatefulHandler interface {
	Handler

	// ForProbe returns a Handler with the same configuration and no state. The engine calls it once for each probe that it adds
	// or whose handler or target changes. The engine makes the probe's attempts only with the returned handler. If that handler
	// is an io.Closer, the engine closes it when the probe no longer needs it.
	ForProbe() Handler
}

// An EndpointHandler returns the endpoint that it connects to. If a replaced handler or target changes the endpoint, published
// results do not apply to the new endpoint, and readiness becomes undecided. For other handlers the engine compares the target's
// address and ports.
type EndpointHandler interface {
	Handler

	// Endpoint returns the endpoint for a target: host and port as joined by net.JoinHostPort, such as "10.0.0.7:80", or the path
	// of a unix socket; "" if the target lacks the address or port. The host determines which network the attempts need: see
	// engine.Config.NoIsolationCheck.
	Endpoint(t Target) string
}

// A PreparingHandler needs time before its first attempt, for example to compile a plugin. The engine does not call Probe until
// the channel returned by Ready is closed; until then the probe's wait reason is "preparing".
type PreparingHandler interface {
	Handler

	// Ready returns the same channel each time. It is closed when the handler can make attempts. It is also closed if preparation
	// failed; the handler then returns the error as the result of each attempt.
	Ready() <-chan struct{}
}

// HandlerFunc adapts a function to a Handler.
type HandlerFunc func(ctx context.Context, t Target) Result

// Probe calls f.
func (f HandlerFunc) Probe(ctx context.Context, t Target) Result { return f(ctx, t) }
