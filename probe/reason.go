package probe

import "strings"

// Reason is a stable code for the cause of an attempt's outcome, or of an instance's
// phase, for alerts and metric labels: "tcp.refused". The part before the dot is the
// layer that the cause lies in. Plugins add reasons of their own, and so do packages of which nobody else
// asks for a reason.
type Reason string

// engineLayer begins the reasons that are the engine's own fault, and runtimeLayer those of what runs an instance.
const engineLayer, runtimeLayer = "engine.", "runtime."

// BlamesEngine reports whether the cause lies with the engine or its machine, and not
// with the target, its network or a configuration. An attempt with such a reason is
// unknown, and counts for nothing whatever Rule.OnError says.
func (r Reason) BlamesEngine() bool {
	return strings.HasPrefix(string(r), engineLayer) && r != ReasonStopped
}

// IsPlanned reports whether an instance ends because somebody has asked for that, or since its work is done: that is no
// outage.
func (r Reason) IsPlanned() bool {
	switch r {
	case ReasonShutdown, ReasonOperatorStop, ReasonOperatorRestart, ReasonRuntimeStop, ReasonCompleted:
		return true
	}
	return false
}

// Reasons of the engine itself, and of what it knows of a target.
const (
	ReasonStopped    Reason = "engine.stopped"     // the attempt was cancelled: the probe was changed, or the engine stopped
	ReasonResolver   Reason = "engine.resolver"    // the name server to ask is not known, since resolv.conf has changed or could not be read, or none of several answers
	ReasonResources  Reason = "engine.resources"   // this machine lacked descriptors, ports, memory, processes or threads
	ReasonClock      Reason = "engine.clock"       // a certificate is not valid now by the clock of this machine, which is in doubt: it was set, or is before this program was written
	ReasonNoBeatDue  Reason = "engine.no_beat_due" // no beat need have come yet since the engine listens, or since the instance has started
	ReasonPermission Reason = "engine.permission"  // the system does not let the engine make such attempts: send ICMP, or enter a network namespace
	ReasonNetwork    Reason = "engine.network"     // this machine lacks the network namespace or the interface of the target's network block
	ReasonNoQuorum   Reason = "engine.no_quorum"   // too few votes count of the engines that probe the target together, or as many pass as fail
	ReasonNoPort     Reason = "target.port"        // the target has no port of that name
	ReasonNoAddr     Reason = "target.address"     // the target has no address
	ReasonNotAllowed Reason = "target.not_allowed" // a name or a redirect led to an address that the request for this attempt may not reach
	ReasonTimeout    Reason = "handler.timeout"    // the handler returned after its deadline
)

// OverUDP returns the reason of an error of UDP that has the reason r where the network is TCP: "udp.refused" of
// "tcp.refused".
func (r Reason) OverUDP() Reason {
	if cause, found := strings.CutPrefix(string(r), "tcp."); found && r != ReasonTCPSource {
		return Reason("udp." + cause)
	}
	return r
}

// BlamesRuntime reports whether the cause lies with the container runtime or service manager that runs the instance. Such
// an attempt is unknown and counts for nothing, whatever Rule.OnError says, and nothing is restarted meanwhile (K71).
func (r Reason) BlamesRuntime() bool { return strings.HasPrefix(string(r), runtimeLayer) }

// IsNeverCounted reports whether an unknown attempt counts for nothing, whatever Rule.OnError says.
func (r Reason) IsNeverCounted() bool { return r.BlamesEngine() || r.BlamesRuntime() }

// Evidence is what the reason of a failure says about the network between the engine
// and a target.
type Evidence uint8

// The kinds of evidence.
const (
	NoEvidence     Evidence = iota // none, or unknown, as for the reasons of plugins
	Answered                       // the target or its host answered, and that answer is the cause
	Interrupted                    // the target answered at first, and then no longer
	Silent                         // the target did not answer in time, or there was no way to it
	NameUnanswered                 // no name server answered, or none could
	NameAnswered                   // a name server answered, and that answer is the cause
)

// Evidence returns what r says about the network.
func (r Reason) Evidence() Evidence {
	switch r {
	case ReasonDNSNotFound:
		return NameAnswered
	case ReasonTCPRefused, reasonUDPRefused, ReasonTLSExpired, ReasonTLSExpiring, ReasonTLSUntrusted, ReasonTLSName, ReasonTCPExpect,
		ReasonHTTPStatus, ReasonHTTPRedirect, ReasonHTTPProtocol, ReasonHTTPAssert:
		return Answered
	case ReasonTCPReset, ReasonTCPClosed, ReasonTLSFailed, ReasonHTTPBody:
		return Interrupted
	case ReasonTCPTimeout, ReasonTCPUnreachable, reasonUDPTimeout, reasonUDPUnreachable, ReasonTLSTimeout, ReasonHTTPTimeout, ReasonTimeout,
		ReasonICMPTimeout, ReasonICMPUnreachable, ReasonICMPTTLExceeded:
		return Silent
	case ReasonDNSTimeout, ReasonDNSFailed:
		return NameUnanswered
	}
	return NoEvidence
}

// The reasons of a connection that failed.
const (
	ReasonDNSNotFound Reason = "dns.nxdomain" // the name does not exist
	ReasonDNSTimeout  Reason = "dns.timeout"  // the resolver did not answer in time
	ReasonDNSFailed   Reason = "dns.failed"   // the resolver answered with an error

	ReasonTCPRefused     Reason = "tcp.refused"     // no process listens on the port
	ReasonTCPTimeout     Reason = "tcp.timeout"     // no answer before the deadline
	ReasonTCPReset       Reason = "tcp.reset"       // the peer reset the connection
	ReasonTCPUnreachable Reason = "tcp.unreachable" // no route to the host or network
	ReasonTCPClosed      Reason = "tcp.closed"      // the peer closed the connection before it answered
	ReasonTCPFailed      Reason = "tcp.failed"      // any other error of the connection
	ReasonTCPLoss        Reason = "tcp.loss"        // a warning: the peer answered late, after this machine had sent segments again
	ReasonTCPSource      Reason = "tcp.source"      // this machine could not connect: its source address, ports, routes or firewall

	reasonUDPRefused     Reason = "udp.refused"     // no process receives at the port, as its host reports
	reasonUDPTimeout     Reason = "udp.timeout"     // no datagram before the deadline
	reasonUDPUnreachable Reason = "udp.unreachable" // no route to the host or network

	ReasonUnixMissing Reason = "unix.missing" // the socket does not exist
	ReasonUnixRefused Reason = "unix.refused" // no process listens on the socket

	ReasonTLSExpired   Reason = "tls.expired"   // a certificate is not valid now
	ReasonTLSExpiring  Reason = "tls.expiring"  // a certificate is valid for less time than configured
	ReasonTLSUntrusted Reason = "tls.untrusted" // the certificate is not signed by a trusted authority
	ReasonTLSName      Reason = "tls.name"      // the certificate is for another name
	ReasonTLSTimeout   Reason = "tls.timeout"   // the handshake did not finish before the deadline
	ReasonTLSFailed    Reason = "tls.failed"    // any other error of the handshake
)

// Reasons of the built-in handlers.
const (
	ReasonHTTPStatus   Reason = "http.status"   // the status is not one of the expected
	ReasonHTTPRedirect Reason = "http.redirect" // a redirect that is not followed, or too many redirects
	ReasonHTTPTimeout  Reason = "http.timeout"  // no response header before the deadline
	ReasonHTTPProtocol Reason = "http.protocol" // the response is not HTTP
	ReasonHTTPBody     Reason = "http.body"     // the body could not be read to its end
	ReasonHTTPAssert   Reason = "http.assert"   // the body, or a header, is not what was expected

	ReasonTCPExpect Reason = "tcp.expect" // the response is not what was expected

	ReasonICMPTimeout     Reason = "icmp.timeout"      // no reply before the deadline
	ReasonICMPUnreachable Reason = "icmp.unreachable"  // no route to the host or network, or a host on the way said so
	ReasonICMPTTLExceeded Reason = "icmp.ttl_exceeded" // the request passed more routers than its TTL allows
	ReasonICMPTooBig      Reason = "icmp.too_big"      // the request does not fit through a network on the way
	ReasonICMPFailed      Reason = "icmp.failed"       // any other error
	ReasonICMPSource      Reason = "icmp.source"       // this machine could not send: its source address, routes or firewall, or the address is a broadcast address

	ReasonExecExit    Reason = "exec.exit"    // the command's exit status is not 0
	ReasonExecSignal  Reason = "exec.signal"  // a signal killed the command
	ReasonExecTimeout Reason = "exec.timeout" // the command did not exit before the deadline
)

// Reasons of a container runtime, or of a service manager: why it did not do what a driver or an attempt has asked for.
const (
	ReasonRuntimeUnavailable Reason = "runtime.unavailable"  // its socket does not exist or refuses connections, or it ended the connection
	ReasonRuntimeTimeout     Reason = "runtime.timeout"      // it did not answer in time
	ReasonRuntimePermission  Reason = "runtime.permission"   // the engine may not connect to its socket, or may not do that
	ReasonRuntimeNoContainer Reason = "runtime.no_container" // it has no such container, or several that match
	ReasonRuntimeNoUnit      Reason = "runtime.no_unit"      // systemd has no such unit, or cannot load it
	ReasonRuntimeFailed      Reason = "runtime.failed"       // it answered with any other error
)

// The reasons of an instance's phase.
const (
	ReasonBackOff         Reason = "restart.back_off"         // the previous instance exited; the next one waits for its back-off
	ReasonStartAfter      Reason = "restart.start_after"      // the instance waits for other targets before it is started
	ReasonStarting        Reason = "restart.starting"         // the process runs, and has not said yet that it is ready
	ReasonOperatorStop    Reason = "restart.operator_stop"    // an operator has stopped the target
	ReasonNotRunning      Reason = "restart.not_running"      // the container exists, has exited on its own, and its runtime does not start it again
	ReasonRuntimeStop     Reason = "restart.runtime_stop"     // somebody has stopped the instance by a command of its runtime, such as docker stop
	ReasonOperatorRestart Reason = "restart.operator_restart" // the instance is, or was, terminated since an operator has asked for another one, here or by a command of its runtime
	ReasonCrashLoop       Reason = "restart.crash_loop"       // previous instances exited one after another; this one has not run for as long yet as the back-off before it
	ReasonDegraded        Reason = "restart.engine_degraded"  // the instance fails, and waits until the engine is well: see engine.Engine.Doubts
	ReasonDependency      Reason = "restart.dependency"       // the instance fails, and waits until no target that it depends on is in trouble
	ReasonPaused          Reason = "restart.paused"           // the instance fails, and waits until the target is not paused any more: an operator has paused it
	ReasonMaintenance     Reason = "restart.maintenance"      // the instance fails, and waits until the maintenance of the target ends
	ReasonOwnership       Reason = "restart.ownership"        // the instance fails, and waits until this engine, or another of the fleet, owns the target and may act; with a quorum, until enough vantages say that it fails
	ReasonDamped          Reason = "restart.damped"           // the instance fails, and waits until the target is not damped any more: it has flapped
	ReasonFloor           Reason = "restart.floor"            // the instance fails, takes requests, and waits until its group has enough ready members without it
	ReasonBudget          Reason = "restart.budget"           // the instance fails, and waits until the restart budget allows a restart
	ReasonReload          Reason = "restart.reload"           // the instance fails a probe that a reload or a push has changed, and waits while too many of the probes changed by it fail and never succeeded
	ReasonEnding          Reason = "restart.ending"           // the instance fails and is being terminated
	ReasonEnded           Reason = "restart.ended"            // the instance was terminated because it failed or was no longer configured
	ReasonShutdown        Reason = "restart.shutdown"         // the instance is, or was, terminated since the engine ends; the next engine starts another
	ReasonExited          Reason = "restart.exited"           // the instance exited on its own
	ReasonCompleted       Reason = "restart.completed"        // the instance exited with status 0, and no other follows
	ReasonNoStart         Reason = "restart.no_start"         // the instance could not be started
	ReasonNotConfigured   Reason = "cluster.not_configured"   // no instance is known: the engine that owns the target has no such target in its files
	ReasonGray            Reason = "cluster.gray"             // this engine gets no answer from the target, and another one does
	ReasonQuorumGray      Reason = "quorum.gray"              // the engines of a quorum differ: of a failure, most say that it fails; of a warning, some do
)

// IsDisputed reports whether engines of a fleet differ about the target. One of them may be at fault, and the target serves:
// nobody is notified of it.
func (r Reason) IsDisputed() bool { return r == ReasonGray || r == ReasonQuorumGray }
