package engine

import (
	"encoding/json"
	"fmt"
	"hash/fnv"
	"io"
	"time"

	"github.com/sonde-probe/sonde/engine/verdict"
	"github.com/sonde-probe/sonde/probe"
)

// Memory is what an engine remembers about one probe, for another engine to go on with:
// after a restart, or on another machine. Engine.Snapshot returns it, and Change gives
// it to an engine together with the probe. The zero Memory has seen nothing.
type Memory struct {
	State   verdict.State `json:"s"`
	Since   time.Time     `json:"at,omitzero"` // when State.Verdict was published
	Changes uint64        `json:"n,omitempty"` // how often State.Verdict or State.Instance has changed

	Started       bool      `json:"started,omitempty"` // the instance State.Instance has started: its startup probes have passed
	InstanceSince time.Time `json:"began,omitzero"`    // when that instance began to run; zero if it is not known

	Warned bool `json:"w,omitempty"` // the probe passes, and warns: see verdict.Warnings

	// Fault is that of the probe, when State has changed last: one that passes all the time has none to remember.
	Fault Fault `json:"f,omitzero"`

	Endpoint uint64 `json:"e,omitempty"` // identifies what was probed: see probe.EndpointHandler; 0 if it is not known
	Handler  uint32 `json:"h,omitempty"` // identifies how it was probed: see probe.Probe.Revision; 0 if it is not known

	// Proven identifies the handler and the rule with which attempts of a startup or liveness probe have succeeded. It is 0
	// if none has succeeded since the probe has them.
	Proven uint32 `json:"p,omitempty"`
}

// handlerOf returns the Memory.Handler of a probe: a hash, and 0 without a revision. It must
// not change, as that of endpointOf.
func handlerOf(name, revision string) uint32 {
	if revision == "" {
		return 0
	}
	h := fnv.New32a()
	_, _ = io.WriteString(h, name+"\x00"+revision)
	return max(h.Sum32(), 1)
}

// endpointOf returns the Memory.Endpoint of a probe: a hash, which is never 0. It must not
// change, since a later release reads it.
func endpointOf(configured probe.Handler, t probe.Target) uint64 {
	sum := func(text string, port uint16) uint64 {
		h := fnv.New64a()
		_, _ = io.WriteString(h, text)
		_, _ = h.Write([]byte{0, byte(port >> 8), byte(port)})
		return h.Sum64()
	}
	network := uint64(0)
	if t.Network != nil {
		text, _ := json.Marshal(t.Network) // texts and a number; without those that are not set, so that a new field changes nothing
		network = sum(string(text), 0)
	}
	if h, ok := configured.(probe.EndpointHandler); ok {
		return max(sum(h.Endpoint(t), 0)+network, 1)
	}
	all := sum(t.Address, 0) + network
	for name, port := range t.Ports {
		all += sum(name, port) // in any order
	}
	return max(all, 1)
}

// Check returns an error if m is no memory of a probe with rule r: no probe of that
// kind can have such a state.
func (m Memory) Check(r probe.Rule) error {
	_, err := verdict.Restore(r, m.State)
	return err
}

// Renewed returns the memory for a probe of a kind that goes on with its verdict, and
// starts a new run of equal outcomes: its first attempt is made at once, and not at its
// regular time. A failed startup or liveness probe is no longer on hold.
func (m Memory) Renewed(k probe.Kind) Memory {
	m.State = verdict.Renew(k, m.State)
	return m
}

// Forgotten returns a memory without a state: a probe begins anew with it, and it is known whether its attempts have succeeded.
func (m Memory) Forgotten() Memory {
	return Memory{Endpoint: m.Endpoint, Handler: m.Handler, Proven: m.Proven}
}

// MarshalBinary implements encoding.BinaryMarshaler. The form is JSON, the same for equal memories. Its names are short,
// since there may be millions.
func (m Memory) MarshalBinary() ([]byte, error) {
	m.Since, m.InstanceSince, m.Fault.At = m.Since.UTC(), m.InstanceSince.UTC(), m.Fault.At.UTC()
	return json.Marshal(m)
}

// UnmarshalBinary implements encoding.BinaryUnmarshaler. If it returns an error, it has
// not changed m. Whether the state is one of a probe's kind is for Check to say.
func (m *Memory) UnmarshalBinary(b []byte) error {
	var read Memory
	if err := json.Unmarshal(b, &read); err != nil {
		return fmt.Errorf("memory: %w", err)
	}
	*m = read
	return nil
}
