package store

import (
	"encoding/json"
	"errors"
	"fmt"
	"time"

	"github.com/sonde-probe/sonde/engine"
	"github.com/sonde-probe/sonde/probe"
)

// magic identifies the file. Another version of the updates gets another number.
const magic = "sonde state 2"

// maxRecord bounds a memory or a value, in bytes, so that several fit into a frame.
const maxRecord = 256 << 10

// update is the content of a frame of the journal, as JSON: what has changed since the frames before.
type update struct {
	Time   moment                     `json:"time"`           // when it was written
	Boot   string                     `json:"boot,omitempty"` // the boot ID; in the first frame
	Probes []memory                   `json:"probes,omitempty"`
	Values map[string]json.RawMessage `json:"values,omitempty"` // by key; null: removed
}

// memory is what the engine remembers of a probe.
type memory struct {
	Target string          `json:"target"`
	Kind   probe.Kind      `json:"kind"`
	Name   string          `json:"name,omitempty"`
	Memory json.RawMessage `json:"memory,omitempty"` // an engine.Memory; empty: removed
}

// content is what the updates add up to.
type content struct {
	memories map[probe.ID]engine.Memory
	values   map[string][]byte
	boot     string
	written  moment
	instance string // of the last memory, to be shared by equal ones

	unfinished int64 // bytes at the end of the file that were ignored
}

func newContent() *content {
	return &content{memories: map[probe.ID]engine.Memory{}, values: map[string][]byte{}}
}

// accept reads a frame.
func (c *content) accept(frame []byte) error {
	var u update
	if err := json.Unmarshal(frame, &u); err != nil {
		return err
	}
	if u.Time.isZero() {
		return errors.New("frame without a time")
	}
	if c.written = u.Time; u.Boot != "" {
		c.boot = u.Boot
	}
	for _, m := range u.Probes {
		if err := c.add(probe.ID{Target: m.Target, Kind: m.Kind, Name: m.Name}, m.Memory); err != nil {
			return err
		}
	}
	for key, value := range u.Values {
		if c.values[key] = value; string(value) == "null" {
			delete(c.values, key)
		}
	}
	return nil
}

// add adds the memory of a probe, or removes it.
func (c *content) add(id probe.ID, value []byte) error {
	if len(value) == 0 {
		delete(c.memories, id)
		return nil
	}
	var m engine.Memory
	if err := errors.Join(m.UnmarshalBinary(value), id.Check()); err != nil {
		return fmt.Errorf("probe %q: %w", id, err)
	}
	if m.State.Instance == c.instance {
		m.State.Instance = c.instance
	}
	c.instance = m.State.Instance
	c.memories[id] = m
	return nil
}

// restored returns the content of a file that was written at a time, when the wall clock
// was shift behind what it would be now.
func (c *content) restored(written time.Time, shift time.Duration) Restored {
	for id, m := range c.memories {
		m.Since = moved(m.Since, shift, written)
		m.InstanceSince = moved(m.InstanceSince, shift, written)
		c.memories[id] = m
	}
	return Restored{Memories: c.memories, Values: c.values, Written: written, Shift: shift}
}

// moved returns a time that was recorded before the clock was set, and is not after the
// latest.
func moved(t time.Time, shift time.Duration, latest time.Time) time.Time {
	if t.IsZero() {
		return t
	}
	if t = t.Add(shift); t.After(latest) {
		return latest
	}
	return t
}
