package fleet_test

import (
	"errors"
	"strings"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	"github.com/sonde-probe/sonde/fleet"
	"github.com/sonde-probe/sonde/fleet/coord"
	"github.com/sonde-probe/sonde/fleet/shard"
	"github.com/sonde-probe/sonde/tests/coordtest"
	"github.com/sonde-probe/sonde/tests/tier"
)

// notices are the notices that the receivers of an engine know.
type notices struct {
	member *member

	toldMu sync.Mutex // guards all below
	told   map[string]string
	isOdd  bool // the stored notices are of another release
	late   int  // calls of SetNotified for targets for which the engine may already act
}

func (n *notices) Notified(target string) []byte {
	n.toldMu.Lock()
	defer n.toldMu.Unlock()
	if text, ok := n.told[target]; ok {
		return []byte(text)
	}
	return nil
}

// ofGroup is the prefix of groups in told.
const ofGroup = "group "

func (n *notices) NotifiedOfGroup(group string) []byte { return n.Notified(ofGroup + group) }

func (n *notices) SetNotifiedOfGroup(group string, value []byte) error {
	return n.setNotified(group, ofGroup+group, value)
}

func (n *notices) SetNotified(target string, value []byte) error {
	return n.setNotified(target, target, value)
}

func (n *notices) setNotified(target, subject string, value []byte) error {
	mayNotify := n.member.fleet.MayNotify(target)
	n.toldMu.Lock()
	defer n.toldMu.Unlock()
	if mayNotify {
		n.late++
	}
	if n.isOdd {
		return errors.New("odd")
	}
	n.set(subject, string(value))
	return nil
}

// know sets what receivers know about a target, as a state file does.
func (n *notices) know(target, text string) {
	n.toldMu.Lock()
	defer n.toldMu.Unlock()
	n.set(target, text)
}

// becomeOdd makes the stored notices unreadable.
func (n *notices) becomeOdd() {
	n.toldMu.Lock()
	defer n.toldMu.Unlock()
	n.isOdd = true
}

// set sets a notice. The caller must hold toldMu.
func (n *notices) set(target, text string) {
	if n.told == nil {
		n.told = map[string]string{}
	}
	if n.told[target] = text; text == "" {
		delete(n.told, target)
	}
}

// tell records that receivers were notified about a target, as Notifiers do.
func (n *notices) tell(target, text string) {
	n.know(target, text)
	n.member.fleet.NoticesChanged(strings.TrimPrefix(target, ofGroup))
}

func (n *notices) all() (all string) {
	n.toldMu.Lock()
	defer n.toldMu.Unlock()
	for i := range 8 {
		if text, ok := n.told[name(i)]; ok {
			all += text + " "
		}
	}
	if n.late > 0 {
		n.member.Errorf("%d targets could be told of before it was known what was told", n.late)
	}
	return strings.TrimSpace(all)
}

// knows returns what receivers know about a subject.
func (n *notices) knows(subject string) string { return string(n.Notified(subject)) }

func name(i int) string { return "shop/web-" + string(rune('0'+i)) }

func TestWhatReceiversKnowMovesWithATarget(t *testing.T) {
	tier.Slow(t)
	synctest.Test(t, func(t *testing.T) {
		w, b := newWorld(), coordtest.NewLocal()
		first := start(t, "first", b, w.targets(8))
		time.Sleep(30 * time.Second)
		first.notices.tell(name(1), "one")
		first.notices.tell(name(2), "two")
		first.notices.tell(name(3), "three")
		time.Sleep(5 * time.Second)
		first.notices.tell(name(2), "")
		time.Sleep(5 * time.Second)
		before := first.backend.writes.Load()
		time.Sleep(time.Hour)
		if n := first.backend.writes.Load() - before; n > 0 {
			t.Errorf("what receivers know is stored again: %d requests", n)
		}

		second := start(t, "second", b, w.targets(8))
		time.Sleep(30 * time.Second)
		moved := 0
		for i := range 8 {
			if owned, _ := second.co.Owned(); owned[shard.Of(name(i))].Token != 0 {
				moved++
			}
		}
		if moved == 0 || moved == 8 {
			t.Fatalf("%d targets have moved", moved)
		}
		first.kill()
		time.Sleep(30 * time.Second)
		if got := second.notices.all(); got != "one three" {
			t.Errorf("the next owner knows %q", got)
		}

		// The store knows more than the state file of an engine that comes back.
		second.notices.tell(name(1), "")
		time.Sleep(5 * time.Second)
		third := start(t, "third", b, w.targets(8))
		third.notices.know(name(1), "one")
		second.stop()
		time.Sleep(30 * time.Second)
		if got := third.notices.all(); got != "three" {
			t.Errorf("the engine after it knows %q", got)
		}
	})
}

// The next owner learns what receivers know about a target that its configuration does not have, and can notify them
// that it is gone.
func TestWhatReceiversKnowOfATargetThatIsGoneMovesOnce(t *testing.T) {
	tier.Slow(t)
	synctest.Test(t, func(t *testing.T) {
		w, b := newWorld(), coordtest.NewLocal()
		first := start(t, "first", b, w.targets(8))
		time.Sleep(30 * time.Second)
		first.notices.tell(name(1), "one")
		first.notices.tell(name(7), "seven")
		time.Sleep(5 * time.Second)
		first.kill()
		second := start(t, "second", b, w.targets(4))
		time.Sleep(30 * time.Second)
		if got := second.notices.all(); got != "one seven" {
			t.Errorf("the next owner knows %q", got)
		}
		second.notices.tell(name(7), "")
		time.Sleep(5 * time.Second)
		second.stop()
		third := start(t, "third", b, w.targets(8))
		time.Sleep(30 * time.Second)
		if got := third.notices.all(); got != "one" {
			t.Errorf("the engine after it knows %q", got)
		}
	})
}

// An engine that is cut off from the store could not store its notices. Its lease, and so its right to restart, lasts
// longer.
func TestNobodyIsToldWhatCannotBeStored(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		w := newWorld()
		one := start(t, "one", coordtest.NewLocal(), w.targets(8))
		time.Sleep(time.Minute)
		for range 100 {
			time.Sleep(100 * time.Millisecond)
			if !one.fleet.MayNotify(name(1)) {
				t.Fatal("an engine tells nothing between two renewals of its lease")
			}
		}
		one.backend.isCut.Store(true)
		time.Sleep(coord.DefaultTTL / 2)
		if one.fleet.MayNotify(name(1)) || !one.fleet.MayAct(name(1)) {
			t.Error("an engine that is cut off tells receivers, or does not act for as long as its lease lasts")
		}
		time.Sleep(time.Minute)
		one.backend.isCut.Store(false)
		time.Sleep(5 * time.Second)
		if !one.fleet.MayNotify(name(1)) {
			t.Error("the store is back, and nobody is told anything")
		}
	})
}

func TestATargetIsTakenOverThoughItIsNotKnownWhatWasTold(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		w, b := newWorld(), coordtest.NewLocal()
		first := start(t, "first", b, w.targets(8))
		time.Sleep(30 * time.Second)
		first.notices.tell(name(1), "one")
		time.Sleep(5 * time.Second)
		first.stop()
		next := &cutOff{Backend: b}
		second := resumeWith(t, "second", next, w.targets(8), fleet.Forget)
		second.notices.becomeOdd()
		time.Sleep(30 * time.Second)
		if !second.fleet.MayAct(name(1)) || second.notices.all() != "" {
			t.Errorf("knows %q", second.notices.all())
		}
		if !strings.Contains(second.log.String(), "receivers may get notices again") {
			t.Errorf("log: %s", second.log.String())
		}
	})
}

// The notices of a group move with the shard of its name, which may have no targets, or a target of the same name.
func TestWhatReceiversKnowMovesWithAGroup(t *testing.T) {
	tier.CI(t)
	synctest.Test(t, func(t *testing.T) {
		w, b := newWorld(), coordtest.NewLocal()
		targets := func() fleet.Targets {
			all := w.targets(8)
			all.Groups = []string{"web", name(1)}
			return all
		}
		const web, one = ofGroup + "web", ofGroup + "shop/web-1"
		first := start(t, "first", b, targets())
		time.Sleep(30 * time.Second)
		first.notices.tell(web, "down")
		first.notices.tell(one, "too")
		first.notices.tell(name(1), "target")
		time.Sleep(5 * time.Second)
		before := first.backend.writes.Load()
		time.Sleep(time.Hour)
		if n := first.backend.writes.Load() - before; n > 0 {
			t.Errorf("what receivers know is stored again: %d requests", n)
		}
		first.kill()
		second := start(t, "second", b, targets())
		time.Sleep(30 * time.Second)
		if got := second.notices.knows(web) + second.notices.knows(one) + second.notices.knows(name(1)); got != "downtootarget" {
			t.Errorf("the next owner knows %q", got)
		}

		// The owner is cut off, and resumes from the notices that another engine has sent meanwhile.
		time.Sleep(100 * time.Millisecond) // not while it renews its lease
		second.backend.isCut.Store(true)
		third := start(t, "third", b, targets())
		time.Sleep(30 * time.Second)
		third.notices.tell(web, "")
		third.notices.tell(one, "again")
		time.Sleep(5 * time.Second)
		third.stop()
		second.backend.isCut.Store(false)
		time.Sleep(time.Minute)
		if got := second.notices.knows(web) + second.notices.knows(one) + second.notices.knows(name(1)); got != "againtarget" {
			t.Errorf("the owner that is back knows %q", got)
		}
		second.notices.tell(one, "")
		time.Sleep(5 * time.Second)
		fourth := start(t, "fourth", b, targets())
		second.stop()
		time.Sleep(30 * time.Second)
		if got := fourth.notices.knows(web) + fourth.notices.knows(one) + fourth.notices.knows(name(1)); got != "target" {
			t.Errorf("the last owner knows %q", got)
		}
	})
}
