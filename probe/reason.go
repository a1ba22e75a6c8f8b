package probe

// Reason is a stable code for why an attempt ended as it did, fit for alerts
// and metric labels: "tcp.refused". The part before the dot is the layer that
// answered. Plugins add reasons of their own; these are the engine's and the
// built-in handlers'.
type Reason string

// The reasons of the engine itself.
const (
	ReasonPanic   Reason = "handler.panic"   // the handler panicked
	ReasonStopped Reason = "engine.stopped"  // the attempt was cancelled, since the probe was changed or the engine ended
	ReasonNoPort  Reason = "target.port"     // the target lacks the named port
	ReasonNoAddr  Reason = "target.address"  // the target has no address
	ReasonTimeout Reason = "handler.timeout" // the handler outlived its deadline
)

// The reasons of a connection that could not be made.
const (
	ReasonDNSNotFound Reason = "dns.nxdomain" // the name does not exist
	ReasonDNSTimeout  Reason = "dns.timeout"  // the resolver did not answer in time
	ReasonDNSFailed   Reason = "dns.failed"   // the resolver answered with an error

	ReasonTCPRefused     Reason = "tcp.refused"     // nobody listens there
	ReasonTCPTimeout     Reason = "tcp.timeout"     // no answer before the deadline
	ReasonTCPReset       Reason = "tcp.reset"       // the peer broke the connection off
	ReasonTCPUnreachable Reason = "tcp.unreachable" // no route to the host or network
	ReasonTCPClosed      Reason = "tcp.closed"      // the peer closed before it had answered
	ReasonTCPFailed      Reason = "tcp.failed"      // any other trouble with the connection
	ReasonTCPSource      Reason = "tcp.source"      // this machine could not dial: source address, ports, descriptors

	ReasonUnixMissing Reason = "unix.missing" // there is no such socket
	ReasonUnixRefused Reason = "unix.refused" // nobody listens on the socket
	ReasonUnixFailed  Reason = "unix.failed"  // any other trouble with the socket

	ReasonTLSExpired   Reason = "tls.expired"   // a certificate is not valid now
	ReasonTLSUntrusted Reason = "tls.untrusted" // no known authority has signed the certificate
	ReasonTLSName      Reason = "tls.name"      // the certificate is for another name
	ReasonTLSTimeout   Reason = "tls.timeout"   // the handshake did not end before the deadline
	ReasonTLSFailed    Reason = "tls.failed"    // any other trouble with the handshake
)

// The reasons of the built-in handlers.
const (
	ReasonHTTPStatus   Reason = "http.status"   // the status is not an accepted one
	ReasonHTTPRedirect Reason = "http.redirect" // a redirect that is not followed, or too many
	ReasonHTTPTimeout  Reason = "http.timeout"  // no response head before the deadline
	ReasonHTTPProtocol Reason = "http.protocol" // the answer is not HTTP
	ReasonHTTPBody     Reason = "http.body"     // the body stalled or broke off
	ReasonHTTPAssert   Reason = "http.assert"   // the body is not what was expected
	ReasonHTTPRequest  Reason = "http.request"  // the request could not be made

	ReasonTCPExpect Reason = "tcp.expect" // the answer is not what was expected

	ReasonExecExit    Reason = "exec.exit"    // the command's exit status is not 0
	ReasonExecSignal  Reason = "exec.signal"  // a signal ended the command
	ReasonExecStart   Reason = "exec.start"   // the command could not be started
	ReasonExecTimeout Reason = "exec.timeout" // the command did not end before the deadline
)

// The reasons of an instance's phase.
const (
	ReasonBackOff Reason = "restart.back_off" // the last one ended; the next one waits, since they ended too often
	ReasonBudget  Reason = "restart.budget"   // it fails, and waits for the restart budget to allow its end
	ReasonEnding  Reason = "restart.ending"   // it fails and is being ended
	ReasonEnded   Reason = "restart.ended"    // it was ended, since it failed or was no longer wanted
	ReasonExited  Reason = "restart.exited"   // it ended by itself
	ReasonNoStart Reason = "restart.no_start" // it could not be started
)
