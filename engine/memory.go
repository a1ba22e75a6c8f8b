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

// Memory is an engine's state of one probe, from which another engine can resume after a restart or on another machine.
// Engine.Snapshot returns it, and Change passes it to an engine together with the probe. The zero Memory is that of a probe
// without attempts.
type Memory struct {
	State   verdict.State `json:"s"`
	Since   time.Time     `json:"at,omitzero"` // when State.Verdict was published
	Changes uint64        `json:"n,omitempty"` // number of changes of State.Verdict or State.Instance

	Started       bool      `json:"started,omitempty"` // the instance State.Instance has started: its startup probes have passed
	InstanceSince time.Time `json:"began,omitzero"`    // when that instance began to run; zero if unknown

	Warned bool `json:"w,omitempty"` // the probe passes but warns: see verdict.Warnings

	// Fault is the probe's Fault as of the last change of State. A probe that always passes has none.
	Fault Fault `json:"f,omitzero"`

	Endpoint uint64 `json:"e,omitempty"` // hash of the probed endpoint: see probe.EndpointHandler; 0 if unknown
	Handler  uint32 `json:"h,omitempty"` // hash of the handler: see probe.Probe.Revision; 0 if unknown

	// Proven identifies the handler and the rule with which attempts of a startup or liveness probe have succeeded. It is 0 if
	// none has succeeded with the current handler and rule.
	Proven uint32 `json:"p,omitempty"`
}

// handlerOf returns the Memory.Handler of a probe: a hash, or 0 without a revision. Like endpointOf, its result must not change
// between releases.
func handlerOf(name, revision string) uint32 {
	if revision == "" {
		return 0
	}
	h := fnv.New32a()
	_, _ = io.WriteString(h, name+"\x00"+revision)
	return max(h.Sum32(), 1)
}

// endpointOf returns the Memory.Endpoint of a probe: a hash that is never 0. Its result must not change, since later releases
// read it.
func endpointOf(configured probe.Handler, t probe.Target) uint64 {
	sum := func(text string, port uint16) uint64 {
		h := fnv.New64a()
		_, _ = io.WriteString(h, text)
		_, _ = h.Write([]byte{0, byte(port >> 8), byte(port)})
		return h.Sum64()
	}
	network := uint64(0)
	if t.Network != nil {
		text, _ := json.Marshal(t.Network) // text and numbers, with unset fields omitted, so that adding a field does not change the hash
		network = sum(string(text), 0)
	}
	if h, ok := configured.(probe.EndpointHandler); ok {
		return max(sum(h.Endpoint(t), 0)+network, 1)
	}
	all := sum(t.Address, 0) + network
	for name, port := range t.Ports {
		all += sum(name, port) // independent of the order
	}
	return max(all, 1)
}

// Check returns an error if no probe with rule r can have the state in m.
func (m Memory) Check(r probe.Rule) error {
	_, err := verdict.Restore(r, m.State)
	return err
}

// Renewed returns a memory with which a probe of kind k keeps its verdict but starts a new run of equal outcomes: its first
// attempt is made immediately, not at its regular time. A failed startup or liveness probe is no longer on hold.
func (m Memory) Renewed(k probe.Kind) Memory {
	m.State = verdict.Renew(k, m.State)
	return m
}

// Forgotten returns a memory without a state. A probe that resumes from it starts over, but it is known whether its attempts have
// succeeded.
func (m Memory) Forgotten() Memory {
	return Memory{Endpoint: m.Endpoint, Handler: m.Handler, Proven: m.Proven}
}

// MarshalBinary implements encoding.BinaryMarshaler. It returns JSON, which is the same for equal memories. The field names are
// short, since there may be millions of memories.
func (m Memory) MarshalBinary() ([]byte, error) {
	m.Since, m.InstanceSince, m.Fault.At = m.Since.UTC(), m.InstanceSince.UTC(), m.Fault.At.UTC()
	return json.Marshal(m)
}

// UnmarshalBinary implements encoding.BinaryUnmarshaler. If it returns an error, m is unchanged. It does not validate the state:
// see Check.
func (m *Memory) UnmarshalBinary(b []byte) error {
	var read Memory
	if err := json.Unmarshal(b, &read); err != nil {
		return fmt.Errorf("memory: %w", err)
	}
	*m = read
	return nil
}
