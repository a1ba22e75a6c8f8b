package engine

import (
	"context"
	"fmt"
	"testing"
	"time"

	"github.com/sonde-probe/sonde/probe"
)

// silent is a handler that is comparable.
type silent struct{ answer probe.Result }

func (h *silent) Probe(context.Context, probe.Target) probe.Result { return h.answer }

// Only specs of existing probes are kept, even after rejected changes.
func TestSpecsOfReplacedAndRejectedProbesAreForgotten(t *testing.T) {
	e := New(Config{})
	id := func(n int) probe.ID { return probe.ID{Target: fmt.Sprint(n), Kind: probe.Readiness} }
	for round := range 50 {
		set := probe.Set{}
		for n := range 10 {
			set[id(n)] = probe.Probe{
				Handler: &silent{}, HandlerName: "silent", Settings: fmt.Sprint("round = ", round),
				Target: probe.Target{Static: true, Dir: "/", User: "nobody", Labels: map[string]string{"round": fmt.Sprint(round)}},
			}
		}
		if _, err := e.Change(Change{Set: set}); err != nil {
			t.Fatal(err)
		}
		set[id(20)] = probe.Probe{Handler: &silent{}, Rule: probe.Rule{Period: time.Nanosecond}}
		set[id(0)] = probe.Probe{Handler: &silent{}}
		if _, err := e.Change(Change{Set: set}); err == nil {
			t.Fatal("a period of a nanosecond was accepted")
		}
		if _, err := e.Change(Change{Remove: []probe.ID{id(round % 10)}}); err != nil {
			t.Fatal(err)
		}
		if len(e.definitions) != 9 {
			t.Fatalf("there are %d specs of 9 probes", len(e.definitions))
		}
	}
}
