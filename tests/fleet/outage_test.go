package fleet

import (
	"encoding/json"
	"fmt"
	"net/http"
	"os"
	"strings"
	"syscall"
	"testing"
	"time"

	"github.com/sonde-probe/sonde/tests/tier"
)

// get reads a page of the engine's API as JSON.
func (p *process) get(path string, into any) error {
	address, err := os.ReadFile(p.address)
	if err != nil {
		return err
	}
	response, err := http.Get("http://" + strings.TrimSpace(string(address)) + path)
	if err != nil {
		return err
	}
	defer response.Body.Close()
	if response.StatusCode != http.StatusOK {
		return fmt.Errorf("%s: %s", path, response.Status)
	}
	return json.NewDecoder(response.Body).Decode(into)
}

// ready returns which targets each engine shows as ready.
func (f *fleet) ready() (shown [engines]string) {
	f.t.Helper()
	for i, p := range f.engines {
		var all struct {
			Targets []struct {
				Name        string
				Ready, Live bool
			}
		}
		if err := p.get("/v1/targets", &all); err != nil {
			f.t.Fatal(p, err)
		}
		for _, target := range all.Targets {
			if target.Ready && target.Live {
				shown[i] += target.Name + " "
			}
		}
	}
	return shown
}

// showsAll reports whether each engine shows all targets as ready.
func (f *fleet) showsAll() bool {
	for _, shown := range f.ready() {
		if strings.Count(shown, " ") != sickTargets+wellTargets {
			return false
		}
	}
	return true
}

// probed returns the number of attempts during a time.
func (f *fleet) probed(d time.Duration) int {
	before := f.world.attempts()
	time.Sleep(d)
	return f.world.attempts() - before
}

// outage returns a duration in which leases expire that are not kept alive.
func (f *fleet) outage() time.Duration { return f.ttl() + 5*time.Second }

// awaitAttempts waits until each well target has as many more attempts than before as are due in a time.
func (f *fleet) awaitAttempts(before map[string]int, d time.Duration) {
	f.t.Helper()
	f.await("each well target is probed", func() bool {
		for target, n := range f.world.attemptsOf(f.path("well-")) {
			if n < before[target]+int(d/time.Second) { // one per second, as configured
				return false
			}
		}
		return true
	})
}

func TestEnginesProbeAndRestartNothingWithoutEtcd(t *testing.T) {
	needRoot(t)
	t.Parallel()
	path := build(t)
	nodes := startEtcd(t, 3, 2000)
	f := startFleet(t, path, nodes, newWorld(t), steadyFleet, *first)
	f.await("each engine shows all targets", f.showsAll)
	f.awaitAttempts(f.world.attemptsOf(f.path("well-")), 2*time.Second) // by their owners, which have loaded them
	outage := f.outage()
	with := 0
	if tier.IsLong() {
		with = f.probed(outage / 2)
	}
	_, claimed := f.observer.counts()

	for _, n := range nodes {
		n.end(syscall.SIGKILL)
	}
	for i := range 4 {
		f.world.infect(f.path(sickName(i)), 0)
	}
	before := f.world.attemptsOf(f.path("well-"))
	if tier.IsLong() {
		without := f.probed(outage)
		if without < with*2*85/100 || without > with*2*115/100 {
			t.Errorf("%d attempts in %v without etcd, %d in half of that before", without, outage, with)
		}
		t.Logf("%d attempts in %v with etcd, %d in %v without", with, outage/2, without, outage)
	}
	f.awaitAttempts(before, outage)
	if acts, areMore := f.world.takeActs(f.path("")); len(acts) > 0 || areMore {
		t.Errorf("targets were restarted without etcd: %v", acts)
	}
	for i, shown := range f.ready() {
		for n := range wellTargets {
			if !strings.Contains(shown, wellName(n)+" ") {
				t.Errorf("engine-%d no longer shows %s as ready", i, wellName(n))
			}
		}
	}

	for _, n := range nodes {
		n.start(t)
	}
	f.settle()
	if laws := f.broken(); len(laws) > 0 {
		t.Error(strings.Join(laws, "\n"))
	}
	_, now := f.observer.counts()
	t.Logf("%d claims afterwards", now-claimed)
}

func TestNothingMovesWhenTheLeaderOfEtcdIsKilled(t *testing.T) {
	needRoot(t)
	t.Parallel()
	path := build(t)
	nodes := startEtcd(t, 3, 2100)
	f := startFleet(t, path, nodes, newWorld(t), steadyFleet+1, *first)
	f.await("each engine shows all targets", f.showsAll)
	_, before := f.observer.counts()
	killed := leader(t, nodes)
	killed.end(syscall.SIGKILL)
	f.world.infect(f.path(sickName(0)), 0)
	f.awaitAttempts(f.world.attemptsOf(f.path("well-")), f.outage())
	f.settle()
	if _, after := f.observer.counts(); after != before {
		t.Errorf("%d shards were claimed", after-before)
	}
	if laws := f.broken(); len(laws) > 0 {
		t.Error(strings.Join(laws, "\n"))
	}
}
