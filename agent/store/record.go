package store

import (
	"encoding/json"
	"errors"
	"fmt"
	"time"

	"github.com/sonde-probe/sonde/engine"
	"github.com/sonde-probe/sonde/probe"
)

// magic identifies the format of the file. The number changes with the format of update.
const magic = "sonde state 2"

// maxRecord bounds a memory or a value, in bytes, so that several fit into a frame.
const maxRecord = 256 << 10

// update is the content of a frame of the journal, as JSON: the changes since the previous frame.
type update struct {
	Time   moment                     `json:"time"`           // when it was written
	Boot   string                     `json:"boot,omitempty"` // the boot ID; in the first frame
	Probes []memory                   `json:"probes,omitempty"`
	Values map[string]json.RawMessage `json:"values,omitempty"` // by key; null: removed
}

// memory is the memory of a probe.
type memory struct {
	Target string          `json:"target"`
	Kind   probe.Kind      `json:"kind"`
	Name   string          `json:"name,omitempty"`
	Memory json.RawMessage `json:"memory,omitempty"` // an engine.Memory; empty: removed
}

// content is the accumulated content of the updates.
type content struct {
	memories map[probe.ID]engine.Memory
	values   map[string][]byte
	boot     string
	written  moment
	instance string // of the last memory; equal strings are shared

	unfinished int64 // bytes at the end of the file that were ignored
}

func newContent() *content {
	return &content{memories: map[probe.ID]engine.Memory{}, values: map[string][]byte{}}
}

// accept adds a frame to the content.
func (c *content) accept(frame []byte) error {
	var u update
	if err := json.Unmarshal(frame, &u); err != nil {
		return err
	}
	if u.Time.isZero() {
		return errors.New("frame has no time")
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

// add sets or removes the memory of a probe.
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

// restored returns the content of a file that was written at the given time, and before the wall clock was set forward by shift.
func (c *content) restored(written time.Time, shift time.Duration) Restored {
	for id, m := range c.memories {
		m.Since = moved(m.Since, shift, written)
		m.InstanceSince = moved(m.InstanceSince, shift, written)
		c.memories[id] = m
	}
	return Restored{Memories: c.memories, Values: c.values, Written: written, Shift: shift}
}

// moved corrects a time that was recorded before the clock was set forward by shift. The result is at most latest.
func moved(t time.Time, shift time.Duration, latest time.Time) time.Time {
	if t.IsZero() {
		return t
	}
	if t = t.Add(shift); t.After(latest) {
		return latest
	}
	return t
}
