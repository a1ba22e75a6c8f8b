package probe

// GatewayState says what a gateway is to do with a target: what its instance and its probes
// add up to for senders of requests. A TargetState says how the target is, and
// whether it is in trouble. The zero GatewayState is GatewayUndecided.
type GatewayState uint8

// The states of a target for gateways.
const (
	GatewayUndecided GatewayState = iota // it is not known yet: keep what was decided last
	GatewayReady                         // it takes requests
	GatewayDegraded                      // it takes requests, and a readiness probe warns: send it fewer
	GatewayDraining                      // its instance is terminating, or the target is paused: no new requests, those under way may end
	GatewayDown                          // it takes no requests
)

// GatewayStates is the number of states. They are the numbers below it.
const GatewayStates = int(GatewayDown) + 1

var gatewayStateNames = names[GatewayState]{"undecided", "ready", "degraded", "draining", "down"}

// TakesRequests reports whether new requests may be sent to the target: it is ready or
// degraded.
func (s GatewayState) TakesRequests() bool { return s == GatewayReady || s == GatewayDegraded }

// String returns the state as it is written in JSON and metrics, such as "draining".
func (s GatewayState) String() string { return gatewayStateNames.text(s) }

// MarshalText implements encoding.TextMarshaler. It returns the text of String.
func (s GatewayState) MarshalText() ([]byte, error) { return []byte(s.String()), nil }

// UnmarshalText implements encoding.TextUnmarshaler.
func (s *GatewayState) UnmarshalText(b []byte) error { return gatewayStateNames.parse(s, "state", b) }

// Bounds that configurations and gateways share.
const (
	MaxGroups = 1000 // groups of targets
	MaxWeight = 256  // the weight of a target; HAProxy and Envoy have the same bound
)

// Observation is what a gateway has seen of a target itself, with a request that it has
// forwarded.
type Observation struct {
	// Outcome is Success or Failure; Warning is a success, and Unknown is ignored. A failure is
	// what a gateway answers with 502, 503 or 504: the target has refused or reset the
	// connection, has not answered in time, or has answered with one of these itself. Another
	// answer is a success, also a status of 500: the target works, and the request may be wrong.
	Outcome Outcome

	Reason Reason // of a failure, such as ReasonTCPRefused; may be empty
	Detail string // likewise, in words
}
