package engine_test

import (
	"bytes"
	"errors"
	"strings"
	"testing"
	"time"

	"github.com/sonde-probe/sonde/engine"
	"github.com/sonde-probe/sonde/engine/verdict"
	"github.com/sonde-probe/sonde/probe"
)

// sampleMemories has memories in which each field is set at least once.
var sampleMemories = []engine.Memory{
	{},
	{
		State: verdict.State{Instance: "static", Verdict: probe.Passing, Last: probe.Success, Run: 3},
		Since: time.Unix(1_790_000_000, 123).UTC(), Changes: 7, Started: true, InstanceSince: time.Unix(1_780_000_000, 0).UTC(),
	},
	{State: verdict.State{Instance: "a", Verdict: probe.Failing, Last: probe.Failure, OnHold: true}, Changes: 1 << 60},
	{State: verdict.State{Instance: "a", Verdict: probe.Failing, Last: probe.Success, Run: 1 << 30, Errors: 1, Down: true}, Since: time.Unix(-1, 0).UTC()},
	{State: verdict.State{Instance: "a", Verdict: probe.Passing}, Endpoint: 1<<63 + 5},
	{State: verdict.State{Instance: "a", Verdict: probe.Passing}, Endpoint: 7, Handler: 1<<31 + 5},
	{State: verdict.State{Instance: "a", Verdict: probe.Failing, Last: probe.Success, Policy: probe.PolicyEvidence, Run: 33}, Handler: 5},
}

func TestMemoryIsReadBackAsItWasWritten(t *testing.T) {
	for _, m := range sampleMemories {
		b, err := m.MarshalBinary()
		var got engine.Memory
		if err == nil {
			err = got.UnmarshalBinary(b)
		}
		if err != nil || got != m {
			t.Errorf("got %+v, %v, want %+v", got, err, m)
		}
	}
	if b, _ := sampleMemories[1].MarshalBinary(); len(b) > 200 {
		t.Errorf("a typical memory takes %d bytes", len(b))
	}
}

func TestTheMemoryOfAnyInstanceIsReadBackAsItWasWritten(t *testing.T) {
	id := probe.ID{Target: "web", Kind: probe.Readiness}
	for _, name := range []string{"\xff", "\xfe", "line\nbreak", strings.Repeat("x", 1000)} {
		e := engine.New(engine.Config{})
		if _, err := e.Apply(probe.Set{id: with(says(probe.Success))}); err != nil {
			t.Fatal(err)
		}
		e.Report(instance(name))
		m, _ := e.Snapshot(id)
		b, err := m.MarshalBinary()
		var got engine.Memory
		if err = errors.Join(err, got.UnmarshalBinary(b)); err != nil || got.State.Instance == "" || got.State != m.State {
			t.Errorf("%q: got %+v, %v, want %+v", name, got.State, err, m.State)
		}
		if st, _ := e.Target("web"); st.Instance.ID != m.State.Instance || st.Instance.ID != probe.InstanceID(name) {
			t.Errorf("%q: the instance is %q, and its memory about %q", name, st.Instance.ID, m.State.Instance)
		}
	}
}

func TestBytesThatAreNoMemoryAreRejected(t *testing.T) {
	for _, text := range []string{"", "{", `{"s":{"v":"bad"}}`, `{"s":{"l":4}}`, `{"at":"yesterday"}`, `{"n":-1}`, `{"s":{"run":2147483648}}`, "\x02\x05\x03\x00\x07"} {
		got := sampleMemories[3]
		if err := got.UnmarshalBinary([]byte(text)); err == nil || !strings.HasPrefix(err.Error(), "memory: ") || got != sampleMemories[3] {
			t.Errorf("%q: got %v", text, err)
		}
	}
}

// FuzzMemory decodes arbitrary bytes as a memory. A memory that an engine accepts must have a state that a probe can have, and
// must not lead to a panic.
func FuzzMemory(f *testing.F) {
	for _, m := range sampleMemories {
		b, _ := m.MarshalBinary()
		for kind := range byte(3) {
			f.Add(kind, b)
		}
	}
	f.Fuzz(func(t *testing.T, kind byte, b []byte) {
		var m, again engine.Memory
		if m.UnmarshalBinary(b) != nil {
			return
		}
		written, err := m.MarshalBinary()
		if err != nil {
			return // a year after 9999
		}
		err = again.UnmarshalBinary(written)
		if same, _ := again.MarshalBinary(); err != nil || !bytes.Equal(same, written) {
			t.Fatalf("%q is read as %+v, which is read back as %+v, %v", b, m, again, err)
		}
		id := probe.ID{Target: "web", Kind: probe.Startup + probe.Kind(kind%3)}
		e := engine.New(engine.Config{})
		set := probe.Set{id: with(says(probe.Success))}
		_, err = e.Change(engine.Change{Set: set, Memories: map[probe.ID]engine.Memory{id: m}})
		if valid := m.Check(probe.Rule{Kind: id.Kind, SuccessThreshold: 1, FailureThreshold: 3}); (valid == nil) != (err == nil) {
			t.Fatalf("Check says %v, Change %v", valid, err)
		}
		if err != nil {
			return
		}
		e.Report(instance("a"))
		if _, ok := e.Snapshot(id); !ok {
			t.Fatal("the probe has no memory")
		}
	})
}
