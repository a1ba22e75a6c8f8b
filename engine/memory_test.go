package engine_test

import (
	"bytes"
	"strings"
	"testing"
	"time"

	"github.com/sonde-probe/sonde/engine"
	"github.com/sonde-probe/sonde/engine/verdict"
	"github.com/sonde-probe/sonde/probe"
)

// sampleMemories have each field set at least once.
var sampleMemories = []engine.Memory{
	{},
	{
		State: verdict.State{Instance: "static", Verdict: probe.Passing, Last: probe.Success, Run: 3},
		Since: time.Unix(1_790_000_000, 123), Changes: 7, Started: true, InstanceSince: time.Unix(1_780_000_000, 0),
	},
	{State: verdict.State{Instance: "a", Verdict: probe.Failing, Last: probe.Failure, OnHold: true}, Changes: 1 << 60},
	{State: verdict.State{Instance: "a", Verdict: probe.Failing, Last: probe.Success, Run: 1 << 30, Errors: 1, Down: true}, Since: time.Unix(-1, 0)},
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
	if b, _ := sampleMemories[1].MarshalBinary(); len(b) > 40 {
		t.Errorf("a typical memory takes %d bytes", len(b))
	}
}

func TestMemoryOfTheFirstVersionIsRead(t *testing.T) {
	var m engine.Memory
	want := engine.Memory{State: verdict.State{Instance: "abcd", Verdict: probe.Passing, Last: probe.Success, Run: 3}}
	if err := m.UnmarshalBinary(append([]byte{1, 1 | 1<<2, 3, 0, 0, 0, 0}, "abcd"...)); err != nil || m != want {
		t.Errorf("got %+v, %v, want %+v", m, err, want)
	}
}

func TestMemoryWithoutEvidenceIsReadByTheReleaseBefore(t *testing.T) {
	for _, m := range sampleMemories {
		b, err := m.MarshalBinary()
		if want := byte(2 + m.State.Policy); err != nil || b[0] != want {
			t.Errorf("%+v is written with version %d, want %d: %v", m, b[0], want, err)
		}
	}
}

func TestBytesThatAreNoMemoryAreRejected(t *testing.T) {
	good, _ := sampleMemories[1].MarshalBinary()
	header := good[:2]
	for name, c := range map[string]struct {
		bytes []byte
		want  string
	}{
		"nothing":            {nil, "truncated"},
		"a version only":     {good[:1], "truncated"},
		"half":               {good[:8], "truncated"},
		"another version":    {append([]byte{4}, good[1:]...), "version 4 is not supported"},
		"half an endpoint":   {[]byte{1, 0x80, 0, 0, 0, 0, 0, 1, 2, 3}, "truncated"},
		"half a handler":     {[]byte{2, 0, 0, 0, 0, 0, 0, 1, 2, 3}, "truncated"},
		"an unknown verdict": {append([]byte{1, 3}, good[2:]...), "flags 0x3 are not known"},
		"too long a run":     {append(bytes.Clone(header), 0xff, 0xff, 0xff, 0xff, 0x0f, 0, 0, 0, 0), "too many"},
		"an endless number":  {append(bytes.Clone(header), bytes.Repeat([]byte{0xff}, 30)...), "truncated"},
	} {
		got := sampleMemories[3]
		err := got.UnmarshalBinary(c.bytes)
		if err == nil || !strings.Contains(err.Error(), c.want) || got != sampleMemories[3] {
			t.Errorf("%s: got %v, want an error with %q", name, err, c.want)
		}
	}
}

func TestMemoryThatCannotBeReadBackIsNotWritten(t *testing.T) {
	for name, m := range map[string]engine.Memory{
		"an unknown verdict": {State: verdict.State{Verdict: 3}},
		"an unknown outcome": {State: verdict.State{Last: 4}},
		"a negative run":     {State: verdict.State{Run: -1}},
		"an unknown policy":  {State: verdict.State{Policy: 2}},
		"a time long ago":    {Since: time.Date(1, 1, 1, 1, 0, 0, 0, time.UTC)},
	} {
		if b, err := m.MarshalBinary(); err == nil {
			t.Errorf("%s: got %x", name, b)
		}
	}
}

// FuzzMemory reads any bytes as a memory. What an engine accepts of it has to be a state
// that a probe can have, and leads to no panic.
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
		if err == nil {
			err = again.UnmarshalBinary(written)
		}
		if err != nil || again != m {
			t.Fatalf("%x is read as %+v, which is read back as %+v, %v", b, m, again, err)
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
