package probe

import "strings"

// Reason is a stable code for the cause of an attempt's outcome, or of an instance's phase, for alerts and metric labels:
// "tcp.refused". The part before the dot is the layer of the cause. Plugins define their own reasons, and so do packages whose
// reasons no other package refers to.
type Reason string

// engineLayer is the prefix of reasons that are the engine's own fault, runtimeLayer that of faults of a container runtime or
// service manager.
const engineLayer, runtimeLayer = "engine.", "runtime."

// BlamesEngine reports whether the cause lies with the engine or its machine, and not with the target, its network or a
// configuration. An attempt with such a reason is unknown and never counts, regardless of Rule.OnError.
func (r Reason) BlamesEngine() bool {
	return strings.HasPrefix(string(r), engineLayer) && r != ReasonStopped
}

// IsPlanned reports whether the instance ended because somebody requested it, or because its work is done. Neither is an outage.
func (r Reason) IsPlanned() bool {
	switch r {
	case ReasonShutdown, ReasonOperatorStop, ReasonOperatorRestart, ReasonRuntimeStop, ReasonCompleted:
		return true
	}
	return false
}

// Reasons of the engine itself, and reasons that concern the target's definition.
const (
	ReasonStopped    Reason = "engine.stopped"     // the attempt was cancelled: the probe was changed, or the engine stopped
	ReasonResolver   Reason = "engine.resolver"    // the name server is not known (see resolv.conf), or none of several responds
	ReasonResources  Reason = "engine.resources"   // this machine lacked descriptors, ports, memory, processes or threads
	ReasonClock      Reason = "engine.clock"       // a certificate is not valid now, but the clock is in doubt
	ReasonNoBeatDue  Reason = "engine.no_beat_due" // no beat is due yet since the engine listens, or since the instance started
	ReasonPermission Reason = "engine.permission"  // the system does not permit such attempts: to send ICMP, or to enter a namespace
	ReasonNetwork    Reason = "engine.network"     // the network namespace or interface of the target's network block is missing
	ReasonNoQuorum   Reason = "engine.no_quorum"   // of the vantages, too few have a vote that counts, or as many pass as fail
	ReasonNoPort     Reason = "target.port"        // the target has no port of that name
	ReasonNoAddr     Reason = "target.address"     // the target has no address
	ReasonNotAllowed Reason = "target.not_allowed" // a name or a redirect led to an address that this attempt is not allowed to reach
	ReasonTimeout    Reason = "handler.timeout"    // the handler returned after its deadline
)

// OverUDP returns the UDP counterpart of a TCP reason: "udp.refused" for "tcp.refused". Other reasons, and ReasonTCPSource, are
// returned unchanged.
func (r Reason) OverUDP() Reason {
	if cause, found := strings.CutPrefix(string(r), "tcp."); found && r != ReasonTCPSource {
		return Reason("udp." + cause)
	}
	return r
}

// BlamesRuntime reports whether the cause lies with the container runtime or service manager that runs the instance. Such an
// attempt is unknown and never counts, regardless of Rule.OnError, and meanwhile nothing is restarted (K71).
func (r Reason) BlamesRuntime() bool { return strings.HasPrefix(string(r), runtimeLayer) }

// IsNeverCounted reports whether an unknown attempt with this reason never counts, regardless of Rule.OnError.
func (r Reason) IsNeverCounted() bool { return r.BlamesEngine() || r.BlamesRuntime() }

// Evidence is what the reason of a failure reveals about the network between the engine and a target.
type Evidence uint8

// The kinds of evidence.
const (
	NoEvidence     Evidence = iota // none, or unknown, as for the reasons of plugins
	Answered                       // the target or its host responded, and the response is the cause
	Interrupted                    // the target responded at first, then stopped
	Silent                         // the target did not respond in time, or there was no route to it
	NameUnanswered                 // no name server responded, or every response was an error
	NameAnswered                   // a name server responded, and its response is the cause
)

// Evidence returns what r reveals about the network.
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

// Reasons of a failed connection.
const (
	ReasonDNSNotFound Reason = "dns.nxdomain" // the name does not exist
	ReasonDNSTimeout  Reason = "dns.timeout"  // the resolver did not answer in time
	ReasonDNSFailed   Reason = "dns.failed"   // the resolver answered with an error

	ReasonTCPRefused     Reason = "tcp.refused"     // no process listens on the port
	ReasonTCPTimeout     Reason = "tcp.timeout"     // no response before the deadline
	ReasonTCPReset       Reason = "tcp.reset"       // the peer reset the connection
	ReasonTCPUnreachable Reason = "tcp.unreachable" // no route to the host or network
	ReasonTCPClosed      Reason = "tcp.closed"      // the peer closed the connection before it responded
	ReasonTCPFailed      Reason = "tcp.failed"      // any other error of the connection
	ReasonTCPLoss        Reason = "tcp.loss"        // a warning: the peer responded late, after segments had been retransmitted
	ReasonTCPSource      Reason = "tcp.source"      // this machine could not connect: its source address, ports, routes or firewall

	reasonUDPRefused     Reason = "udp.refused"     // no process receives on the port, as reported by the host
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
	ReasonHTTPStatus   Reason = "http.status"   // the status is not one of the expected ones
	ReasonHTTPRedirect Reason = "http.redirect" // a redirect that is not followed, or too many redirects
	ReasonHTTPTimeout  Reason = "http.timeout"  // no response header before the deadline
	ReasonHTTPProtocol Reason = "http.protocol" // the response is not HTTP
	ReasonHTTPBody     Reason = "http.body"     // the body could not be read to its end
	ReasonHTTPAssert   Reason = "http.assert"   // the body or a header is not as expected

	ReasonTCPExpect Reason = "tcp.expect" // the response is not as expected

	ReasonICMPTimeout     Reason = "icmp.timeout"      // no reply before the deadline
	ReasonICMPUnreachable Reason = "icmp.unreachable"  // no route to the host or network, or reported unreachable by a host on the way
	ReasonICMPTTLExceeded Reason = "icmp.ttl_exceeded" // the request passed more routers than its TTL allows
	ReasonICMPTooBig      Reason = "icmp.too_big"      // the request does not fit through a network on the way
	ReasonICMPFailed      Reason = "icmp.failed"       // any other error
	ReasonICMPSource      Reason = "icmp.source"       // cannot send: source address, routes or firewall of this machine, or a broadcast

	ReasonExecExit    Reason = "exec.exit"    // the command's exit status is not 0
	ReasonExecSignal  Reason = "exec.signal"  // a signal killed the command
	ReasonExecTimeout Reason = "exec.timeout" // the command did not exit before the deadline
)

// Reasons of a container runtime or service manager: why it did not do what a driver or an attempt requested.
const (
	ReasonRuntimeUnavailable Reason = "runtime.unavailable"  // its socket does not exist or refuses or closes the connection
	ReasonRuntimeTimeout     Reason = "runtime.timeout"      // it did not respond in time
	ReasonRuntimePermission  Reason = "runtime.permission"   // the engine is not permitted to connect, or to make the request
	ReasonRuntimeNoContainer Reason = "runtime.no_container" // it has no such container, or several that match
	ReasonRuntimeNoUnit      Reason = "runtime.no_unit"      // systemd has no such unit, or cannot load it
	ReasonRuntimeFailed      Reason = "runtime.failed"       // it responded with any other error
)

// Reasons of an instance's phase.
const (
	ReasonBackOff         Reason = "restart.back_off"         // the previous instance exited; the next one waits for the back-off
	ReasonStartAfter      Reason = "restart.start_after"      // the instance waits for other targets before it is started
	ReasonStarting        Reason = "restart.starting"         // the process runs, but has not reported yet that it is ready
	ReasonOperatorStop    Reason = "restart.operator_stop"    // an operator stopped the target
	ReasonNotRunning      Reason = "restart.not_running"      // the container exited on its own, and its runtime does not restart it
	ReasonRuntimeStop     Reason = "restart.runtime_stop"     // a command of the runtime, such as docker stop, stopped the instance
	ReasonOperatorRestart Reason = "restart.operator_restart" // an operator requested a restart, here or with a command of the runtime
	ReasonCrashLoop       Reason = "restart.crash_loop"       // instances exit one after another; this one has not outlived its back-off

	// The instance fails, and its restart waits:
	ReasonDegraded    Reason = "restart.engine_degraded" // until the engine no longer doubts the failure: see engine.Engine.Doubts
	ReasonDependency  Reason = "restart.dependency"      // until no target that it depends on is in trouble
	ReasonPaused      Reason = "restart.paused"          // until the target is no longer paused by an operator
	ReasonMaintenance Reason = "restart.maintenance"     // until the maintenance of the target ends
	ReasonOwnership   Reason = "restart.ownership"       // until an engine owns the target and may act, and a quorum, if any, agrees
	ReasonDamped      Reason = "restart.damped"          // until the target, which flapped, is no longer damped
	ReasonFloor       Reason = "restart.floor"           // until its group has enough ready members without it
	ReasonBudget      Reason = "restart.budget"          // until the restart budget allows a restart
	ReasonReload      Reason = "restart.reload"          // while too many probes changed by the same reload or push fail

	// Other reasons.
	ReasonEnding        Reason = "restart.ending"         // the instance failed and is being terminated
	ReasonEnded         Reason = "restart.ended"          // the instance was terminated: it failed, or was no longer configured
	ReasonShutdown      Reason = "restart.shutdown"       // terminated because the engine shuts down; the next engine starts another
	ReasonExited        Reason = "restart.exited"         // the instance exited on its own
	ReasonCompleted     Reason = "restart.completed"      // the instance exited with status 0, and no other one will follow
	ReasonNoStart       Reason = "restart.no_start"       // the instance could not be started
	ReasonNotConfigured Reason = "cluster.not_configured" // no instance is known: the owning engine has no such target in its files
	ReasonGray          Reason = "cluster.gray"           // this engine gets no response from the target, but another one does
	ReasonQuorumGray    Reason = "quorum.gray"            // the engines of a quorum disagree: most see a failure, or some a warning
)

// IsDisputed reports whether the engines of a fleet disagree about the target. One of them may be at fault, and the target still
// serves requests, so nobody is notified.
func (r Reason) IsDisputed() bool { return r == ReasonGray || r == ReasonQuorumGray }
