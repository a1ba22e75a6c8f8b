package fleet

import (
	"fmt"
	"strings"
	"sync/atomic"
	"syscall"
	"testing"
	"time"

	"github.com/sonde-probe/sonde/tests/plant"
)

// etcdPort is the first port of the first etcd of random faults.
const etcdPort = 3000

// The kinds of faults.
const (
	freeze = "frozen"  // the process and those that it has started are stopped
	crash  = "killed"  // it is killed, and restarted
	leave  = "stopped" // it is terminated cleanly, and restarted
	cutOff = "cut off" // it cannot reach etcd
	hasten = "hurried" // its lease is revoked before the engine can know
)

// longest returns the maximum duration of a fault in a run: the engine's lease may or may not expire.
func (f *fleet) longest() time.Duration { return f.ttl() + 4*time.Second }

// run makes some targets fail and injects faults into one or two engines, and waits until all is well again.
func (f *fleet) run() {
	f.t.Helper()
	f.infect(3+f.random.IntN(3), 2*f.longest())
	victim := f.random.IntN(engines)
	for range 1 + f.random.IntN(2) {
		time.Sleep(f.upTo(4 * time.Second))
		f.strike(victim)
		victim = (victim + 1) % engines
	}
	f.settle()
}

func (f *fleet) upTo(limit time.Duration) time.Duration {
	return time.Duration(f.random.Int64N(int64(limit)))
}

// strike injects a fault into an engine for a time, or terminates and restarts it.
func (f *fleet) strike(engine int) {
	f.t.Helper()
	p := f.engines[engine]
	switch f.random.IntN(6) {
	case 0, 1:
		over := p.suffer(freeze)
		p.signal(syscall.SIGSTOP)
		time.Sleep(f.upTo(f.longest()))
		p.signal(syscall.SIGCONT)
		over.end()
	case 2:
		p.suffer(crash)
		p.end(syscall.SIGKILL)
		time.Sleep(f.upTo(f.ttl()))
		f.start(engine)
	case 3:
		p.suffer(leave)
		p.end(syscall.SIGTERM)
		f.start(engine)
	case 4:
		over := p.suffer(cutOff)
		heal := f.filter(engine, [][]string{{sent}, {received}, {sent, received}}[f.random.IntN(3)]...)
		time.Sleep(f.upTo(f.longest()))
		heal()
		over.end()
	case 5:
		f.infect(5, 0)
		time.Sleep(f.upTo(1500 * time.Millisecond)) // some of the failures are detected meanwhile
		over := p.suffer(hasten)
		heal := f.filter(engine, large) // claims of others
		f.revoke(engine)
		time.Sleep(f.ttl() / 2)
		heal()
		over.end()
	}
}

// infect makes n targets fail until they are restarted, which takes up to limit.
func (f *fleet) infect(n int, limit time.Duration) {
	for range n {
		takes := time.Duration(0)
		if limit > 0 && f.random.IntN(2) == 0 {
			takes = f.upTo(limit)
		}
		f.world.infect(f.path(sickName(f.random.IntN(sickTargets))), takes)
	}
}

// play plays runs of random faults, distributed among fleets that are numbered from firstFleet on, and returns the laws that were
// broken. It stops once a law is broken.
func play(t *testing.T, program string, total, firstFleet int) (laws []string) {
	t.Helper()
	nodes, w := startEtcd(t, 1, etcdPort+10*firstFleet), newWorld(t)
	var left, repeated atomic.Int64
	left.Store(int64(total))
	found := make(chan string, 1000)
	t.Run("fleets", func(t *testing.T) {
		for i := range *fleets {
			t.Run(fmt.Sprint(i), func(t *testing.T) {
				t.Parallel()
				f := startFleet(t, program, nodes, w, firstFleet+i, *first+uint64(i))
				for left.Add(-1) >= 0 {
					f.run()
					broken := f.broken()
					for _, law := range broken {
						found <- fmt.Sprintf("fleet %d: %s", i, law)
					}
					if len(broken) > 0 {
						left.Store(0)
					}
					compact(t, f.client)
				}
				repeated.Add(int64(f.repeated))
			})
		}
	})
	close(found)
	for law := range found {
		laws = append(laws, law)
	}
	t.Logf("%d restarts were repeated, whose engines were frozen or hurried before they could record them", repeated.Load())
	return laws
}

func TestRandomFaultsLeadToNoStaleRestart(t *testing.T) {
	needRoot(t)
	t.Parallel()
	path := build(t)
	laws := play(t, path, *runs, 0)
	if len(laws) > 0 {
		t.Errorf("%d laws were broken:\n%s", len(laws), strings.Join(laws, "\n"))
	}
}

// safeguards are the mechanisms that keep stale engines from acting, each with a fault that disables it.
var safeguards = []plant.Fault{
	{
		Name: "deadline", File: top + "/fleet/coord/coord.go",
		Old: "return max(time.Duration(c.deadline-c.clock.Now()), 0)", New: "return time.Hour",
	},
	{
		Name: "guard", File: top + "/fleet/coord/write.go",
		Old: "Transaction{If: []Condition{{Key: shardKey(id), Created: token}}, Then: []Change{change}}", New: "Transaction{Then: []Change{change}}",
	},
}

// maxPlanted is the maximum number of runs without a safeguard until a law must be broken.
const maxPlanted = 400

// Without one of the safeguards, the same runs must break the laws.
func TestRandomFaultsLeadToStaleRestartsWithoutASafeguard(t *testing.T) {
	needRoot(t)
	if !*planted {
		t.Skip("takes minutes: -planted")
	}
	for i, off := range safeguards {
		t.Run(off.Name, func(t *testing.T) {
			t.Parallel()
			path := off.Program(t, programDir, ".")
			laws := play(t, path, maxPlanted, (1+i)**fleets)
			if len(laws) == 0 {
				t.Error("no run shows that the safeguard is needed")
			}
			t.Log(strings.Join(laws, "\n"))
		})
	}
}
