package probe

// Policy determines how the outcomes of a probe's attempts add up to a verdict.
type Policy uint8

// The policies.
const (
	PolicyRuns     Policy = iota // a run of equal outcomes that reaches a threshold decides, as in Kubernetes
	PolicyEvidence               // outcomes add up to a score: see MaxScore
)

// With the policy "evidence" a failure adds FailureWeight to a score, and a success subtracts 1. The score ranges from 0 to
// MaxScore. A passing probe fails at MaxScore, and a failing one passes at 0. docs/decisions/0065-the-policy-evidence.md derives
// the numbers.
const (
	FailureWeight = 5
	MaxScore      = 20
)

// Effect determines what a failing probe means for its target.
type Effect uint8

// The effects.
const (
	EffectFail Effect = iota // the target is not ready, or for a liveness probe its instance fails; as in Kubernetes
	EffectWarn               // the target is degraded: see StateDegraded
)

var effectNames = names[Effect]{"fail", "warn"}

// String returns "fail" or "warn".
func (e Effect) String() string { return effectNames.text(e) }

// MarshalText implements encoding.TextMarshaler. It returns the text of String.
func (e Effect) MarshalText() ([]byte, error) { return []byte(e.String()), nil }

// UnmarshalText implements encoding.TextUnmarshaler.
func (e *Effect) UnmarshalText(b []byte) error { return effectNames.parse(e, "effect", b) }

var policyNames = names[Policy]{"runs", "evidence"}

// String returns "runs" or "evidence".
func (p Policy) String() string { return policyNames.text(p) }

// MarshalText implements encoding.TextMarshaler. It returns the text of String.
func (p Policy) MarshalText() ([]byte, error) { return []byte(p.String()), nil }

// UnmarshalText implements encoding.TextUnmarshaler.
func (p *Policy) UnmarshalText(b []byte) error { return policyNames.parse(p, "policy", b) }
