package fleet_test

import (
	"strings"
	"testing"
	"testing/synctest"
	"time"

	"github.com/sonde-probe/sonde/engine"
	"github.com/sonde-probe/sonde/fleet"
	"github.com/sonde-probe/sonde/fleet/coord"
	"github.com/sonde-probe/sonde/fleet/shard"
	"github.com/sonde-probe/sonde/restart"
	"github.com/sonde-probe/sonde/tests/coordtest"
)

// A key that no engine has put, such as one of another program, does not hold a memory.
func TestAMemoryInTheShardOfAnotherTargetIsLeftOut(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		b, w := coordtest.NewLocal(), newWorld()
		for _, target := range []string{"shop/web-0", "gone"} { // only one of them is a configured target
			other := shard.Of(target) ^ 1
			stray := coord.Change{Key: "memory/" + other.String() + "/" + target, Value: []byte("{}")}
			if _, err := b.Commit(t.Context(), coord.Transaction{Then: []coord.Change{stray}}); err != nil {
				t.Fatal(err)
			}
		}
		one := start(t, "one", b, w.targets(50))
		time.Sleep(time.Minute)
		two := start(t, "two", b, w.targets(50))
		time.Sleep(time.Minute)
		if n, m := one.probes(), two.probes(); n == 0 || m == 0 {
			t.Errorf("the engines have %d and %d probes", n, m)
		}
		if log := one.log.String() + two.log.String(); strings.Contains(log, "level=ERROR") || strings.Contains(log, "memories of targets") {
			t.Error(log)
		}
	})
}

// A panic must end the program: an engine that keeps running without its fleet would keep its lease, and so its shards.
func TestRunEndsByAPanic(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		e := engine.New(engine.Config{})
		restarts, err := restart.New(restart.Config{Engine: e})
		if err != nil {
			t.Fatal(err)
		}
		co, err := coord.New(coord.Config{Name: "one", Backend: coordtest.NewLocal()})
		if err != nil {
			t.Fatal(err)
		}
		f := fleet.New(fleet.Config{Coordinator: co, Engine: e, Restarts: restarts, Notices: panicking{}})
		if err := f.Apply(newWorld().targets(1)); err != nil {
			t.Fatal(err)
		}
		go co.Run(t.Context())
		ended := make(chan any, 1)
		go func() {
			defer func() { ended <- recover() }()
			f.Run(t.Context())
		}()
		select {
		case value := <-ended:
			if value != "told" {
				t.Errorf("it has ended by the panic %v", value)
			}
		case <-time.After(time.Minute):
			t.Error("it goes on after a panic")
		}
	})
}

// panicking is a Notices implementation with a bug.
type panicking struct{}

func (panicking) Notified(string) []byte                  { panic("told") }
func (panicking) SetNotified(string, []byte) error        { return nil }
func (panicking) NotifiedOfGroup(string) []byte           { return nil }
func (panicking) SetNotifiedOfGroup(string, []byte) error { return nil }
