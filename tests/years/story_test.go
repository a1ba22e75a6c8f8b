package years

import (
	"fmt"
	"maps"
	"slices"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	"github.com/sonde-probe/sonde/agent/store"
	"github.com/sonde-probe/sonde/config"
	"github.com/sonde-probe/sonde/probe"
	"github.com/sonde-probe/sonde/restart"
)

// story is an engine's life for some weeks. Its goroutine decides what happens when.
type story struct {
	*testing.T
	seed   int64
	dir    string // of the state file
	random random
	zero   time.Time // when it begins
	length time.Duration
	world  *world
	model  *model
	trace  *trace
	over   chan struct{} // closed at the end
	exits  sync.WaitGroup

	specs     []*spec // the configuration
	removed   []*spec
	labels    int
	addresses int

	keeps    bool   // there is a state file
	resume   string // how the engine resumes from it
	budget   restart.Budget
	peaceful bool // the engine is never stopped
	life     *life
}

func newStory(t *testing.T, seed int64, dir string) *story {
	r := newRandom(seed, 1)
	s := &story{T: t, seed: seed, dir: dir, random: r, zero: time.Now(), over: make(chan struct{})}
	s.length = r.between(5*24*time.Hour, 35*24*time.Hour)
	s.trace = &trace{zero: s.zero}
	s.world = &world{story: s, targets: map[string]*target{}, silence: newSilence()}
	s.model = newModel(s)
	s.specs = r.configuration(s)
	s.keeps, s.peaceful = r.chance(0.8), r.chance(0.2)
	s.resume = choose(r, config.Trust, config.Trust, config.Trust, config.Verify, config.Forget)
	s.budget = choose(r, restart.Budget{}, restart.Budget{}, restart.Budget{Max: 3, Per: 10 * time.Minute})
	return s
}

func (s *story) newAddress() string {
	s.addresses++
	return fmt.Sprintf("10.0.%d.%d", s.addresses/250, s.addresses%250+1)
}

// settle returns when nothing more happens at the current time.
func (s *story) settle() { synctest.Wait() }

// quiet is how long everything must be well before the verdicts are true: twenty periods of an hour, by which evidence recovers, a
// restart with the longest back-off, and the probes of the next instance.
const quiet = 28 * time.Hour

// play plays the story.
func (s *story) play() {
	s.life = s.begin()
	for end := s.zero.Add(s.length - quiet); !s.Failed(); {
		wait := s.random.about(3*time.Hour) + time.Second
		if time.Now().Add(wait).After(end) {
			break
		}
		time.Sleep(wait)
		s.settle()
		s.next()
	}
	s.world.calmDown()
	time.Sleep(quiet)
	s.settle()
	if !s.Failed() {
		s.model.finally(s.life)
	}
	s.life.stop()
	s.settle()
	s.world.mu.Lock()
	if s.world.open != 0 {
		s.model.brokenLocked("bounds", "", "%d handlers are open after the engine's end", s.world.open)
	}
	s.world.mu.Unlock()
	close(s.over)
	s.exits.Wait()
}

// next causes a random event.
func (s *story) next() {
	r, w := s.random, s.world
	switch n := r.IntN(100); {
	case n < 25:
		s.specs = r.change(s, s.specs)
		s.trace.add("", "reload", "", 0)
		s.model.counts.reloads++
		s.life.reload()
		s.settle()
		s.model.bounds(s.life)
		s.model.movedTargets(s.life)
	case n < 45 && s.peaceful:
	case n < 38:
		s.die()
	case n < 45:
		s.trace.add("", "stop", "", 0)
		s.life.stop()
		if s.keeps {
			s.writeState(otherBoot(s.readState()))
		}
		s.model.stopped()
		s.restart()
	case n < 60:
		s.stall(r.between(2*time.Second, choose(r, 5*time.Second, time.Minute)))
	case n < 72:
		s.trace.add("", "shortage", "", 0)
		w.set(&w.shortage, r.about(5*time.Minute))
	case n < 85:
		d := r.about(5 * time.Minute)
		s.trace.add("", "cut off", d.String(), 0)
		w.set(&w.cutOff, d)
	default:
		for id := range s.life.probes {
			if hash(id.Target)%4 == uint64(n)%4 {
				s.life.engine.Trigger(id)
			}
		}
	}
}

// stall stops the engine for a time, while an attempt waits for its response.
func (s *story) stall(d time.Duration) {
	r, w := s.random, s.world
	ids := slices.SortedFunc(maps.Keys(s.life.probes), probe.ID.Compare)
	st, _ := s.life.engine.Status(ids[r.IntN(len(ids))])
	wait := max(time.Until(st.Next), 0)
	w.set(&w.sluggish, wait+time.Second)
	time.Sleep(wait + r.between(time.Millisecond, 300*time.Millisecond))
	s.settle()
	s.trace.add("", "stalled", d.String(), 0)
	s.life.stall(d)
}

// die kills the engine, at any time or right after it has written something.
func (s *story) die() {
	crash := s.crash
	if s.keeps && s.random.chance(0.3) {
		if before, ok := s.awaitWrite(time.Hour); ok {
			crash = func(b []byte) []byte { // in the middle of that write
				s.trace.add("", "torn", "the last write", 0)
				return otherBoot(b[:int(before)+s.random.part(len(b)-int(before))])
			}
		}
	}
	s.trace.add("", "kill", "", 0)
	s.life.kill(crash)
	s.model.killed(s.life)
	s.restart()
}

// restart restarts the engine after a while, perhaps with another configuration, and perhaps several times.
func (s *story) restart() {
	r := s.random
	down := choose(r, r.about(time.Second), r.about(time.Second), r.between(time.Second, store.DefaultMaxAge-2*time.Minute))
	if r.chance(0.1) {
		down = store.DefaultMaxAge + r.between(2*time.Minute, time.Hour)
	}
	time.Sleep(down)
	if r.chance(0.2) {
		s.specs = r.change(s, s.specs)
	}
	s.trace.add("", "start", s.resume, int64(down))
	s.life = s.begin()
	if r.chance(0.2) {
		time.Sleep(r.about(time.Second))
		s.settle()
		s.die()
	}
}
