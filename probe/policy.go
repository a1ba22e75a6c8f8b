package probe

// Policy says how the outcomes of a probe's attempts add up to a verdict.
type Policy uint8

// The policies.
const (
	PolicyRuns     Policy = iota // as many equal outcomes in a row as a threshold decide, as in Kubernetes
	PolicyEvidence               // outcomes are weighed: see MaxScore
)

// With the policy "evidence" a failure adds FailureWeight to a score, and a success takes 1 off
// it. The score is from 0 to MaxScore. A probe that passes fails at MaxScore, and one that fails
// passes at 0. docs/decisions/0065-the-policy-evidence.md derives the numbers.
const (
	FailureWeight = 5
	MaxScore      = 20
)

// Effect says what it means for a target that a probe of it fails.
type Effect uint8

// The effects.
const (
	EffectFail Effect = iota // it is not ready or, by a liveness probe, its instance fails; as in Kubernetes
	EffectWarn               // it is degraded: see StateDegraded
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
