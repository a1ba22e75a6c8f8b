package probe

// GatewayState tells a gateway how to treat a target. It combines the states of the instance and of the probes from the point of
// view of a client. A TargetState, by contrast, says how well the target is and whether it is in trouble. The zero GatewayState
// is GatewayUndecided.
type GatewayState uint8

// The states of a target for gateways.
const (
	GatewayUndecided GatewayState = iota // not known yet: keep the previous decision
	GatewayReady                         // accepts requests
	GatewayDegraded                      // accepts requests, but a readiness probe warns: send it fewer
	GatewayDraining                      // terminating or paused: no new requests, but requests in progress may finish
	GatewayDown                          // accepts no requests
)

// GatewayStates is the number of states. The states are 0 to GatewayStates-1.
const GatewayStates = int(GatewayDown) + 1

var gatewayStateNames = names[GatewayState]{"undecided", "ready", "degraded", "draining", "down"}

// TakesRequests reports whether new requests may be sent to the target: it is ready or degraded.
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

// Observation is the outcome of a request that a gateway forwarded to a target.
type Observation struct {
	// Outcome is Success or Failure; Warning counts as a success, and Unknown is ignored. A failure is a request that the gateway
	// answers with 502, 503 or 504: the target refused or reset the connection, did not respond in time, or itself responded with
	// one of these codes. Any other response is a success, even one with status 500: the target works, and the request may be
	// wrong.
	Outcome Outcome

	Reason Reason // reason of a failure, such as ReasonTCPRefused; may be empty
	Detail string // the same in words; may be empty
}
