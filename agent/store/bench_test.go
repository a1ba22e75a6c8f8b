package store

import (
	"path/filepath"
	"testing"

	"github.com/sonde-probe/sonde/engine"
	"github.com/sonde-probe/sonde/engine/verdict"
	"github.com/sonde-probe/sonde/probe"
)

// BenchmarkWrite writes the changes of 100,000 probes: all of them to a new file, or 10,000 of them appended to a file.
func BenchmarkWrite(b *testing.B) {
	const probes, changed = 100_000, 10_000
	e, all := engine.New(engine.Config{}), set(probes, newHandler(probe.Success))
	memories := map[probe.ID]engine.Memory{}
	for id := range all {
		memories[id] = engine.Memory{State: verdict.State{Instance: "static", Verdict: probe.Passing, Last: probe.Success, Run: 1}}
	}
	if _, err := e.Change(engine.Change{Set: all, Memories: memories}); err != nil {
		b.Fatal(err)
	}
	s, err := Open(Config{Path: filepath.Join(b.TempDir(), "state")})
	if err != nil {
		b.Fatal(err)
	}
	defer s.Close()
	w := newWriter(s, e, values{})
	run := func(name string, prepare func()) {
		b.Run(name, func(b *testing.B) {
			b.ReportAllocs()
			for b.Loop() {
				prepare()
				if w.write(w.syncNow); w.fails > 0 {
					b.Fatal("writing has failed")
				}
			}
			b.ReportMetric(float64(s.journal.Size())/probes, "B/probe")
		})
	}
	run("everything", func() { w.rewrite = true })
	run("changes", func() {
		for n := range changed {
			w.probes[id(n)] = struct{}{}
		}
	})
}
