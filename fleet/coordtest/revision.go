package coordtest

import (
	"context"
	"errors"
	"fmt"
	"math/rand/v2"
	"reflect"
	"slices"
	"strings"
	"sync"
	"testing"

	"github.com/sonde-probe/sonde/fleet/coord"
	"github.com/sonde-probe/sonde/fleet/revision"
)

// follower is a revision.Follower of a member, with what it has used.
type follower struct {
	*revision.Follower
	name string

	usedMu sync.Mutex // guards all below
	lacks  string     // a text in the main file of a configuration that it refuses
	used   []string   // the main files of the revisions that it was given to use
}

// mainFile is the name of the configuration file of tests.
const mainFile = "config.hcl"

// files returns a bundle with a text and more files.
func files(text string, more ...string) *revision.Bundle {
	b := &revision.Bundle{Sources: []string{mainFile}, Files: map[string][]byte{mainFile: []byte(text)}}
	for i, content := range more {
		b.Files[fmt.Sprintf("files/%d", i)] = []byte(content)
	}
	return b
}

// follow starts a member that follows the configuration.
func follow(t *testing.T, c Config, b coord.Backend, name string) *follower {
	t.Helper()
	f := &follower{name: name}
	member, err := coord.New(coord.Config{Name: name, Backend: b, TTL: c.TTL})
	if err != nil {
		t.Fatal(err)
	}
	if f.Follower, err = revision.New(revision.Config{Coordinator: member, Use: f.use}); err != nil {
		t.Fatal(err)
	}
	ctx, stop := context.WithCancel(t.Context())
	var running sync.WaitGroup
	running.Go(func() { member.Run(ctx) })
	running.Go(func() { f.Run(ctx) })
	t.Cleanup(func() { stop(); running.Wait() })
	until(t, name+" says what it runs", func() bool {
		seen, err := revision.Read(t.Context(), b)
		return err == nil && slices.ContainsFunc(seen.Engines, func(e revision.Engine) bool { return e.Name == name })
	})
	return f
}

func (f *follower) use(_ context.Context, _ revision.Revision, b *revision.Bundle, _ bool) error {
	f.usedMu.Lock()
	defer f.usedMu.Unlock()
	text := string(b.Files[mainFile])
	if f.lacks != "" && strings.Contains(text, f.lacks) {
		return fmt.Errorf("this engine has no %s", f.lacks)
	}
	f.used = append(f.used, text)
	return nil
}

// setLacks sets what the follower refuses.
func (f *follower) setLacks(text string) {
	f.usedMu.Lock()
	defer f.usedMu.Unlock()
	f.lacks = text
}

// wantUsed checks what the follower has used.
func (f *follower) wantUsed(t *testing.T, want ...string) {
	t.Helper()
	f.usedMu.Lock()
	defer f.usedMu.Unlock()
	if !slices.Equal(f.used, want) {
		t.Errorf("%s has used %q, want %q", f.name, f.used, want)
	}
}

// awaitRunning waits until an engine says that it runs a revision.
func awaitRunning(t *testing.T, b coord.Backend, r revision.Revision, engines ...*follower) {
	t.Helper()
	for _, f := range engines {
		until(t, fmt.Sprintf("%s runs revision %d", f.name, r.Number), func() bool {
			e := engineOf(t, b, f.name)
			return e.Running == r.Ref() && e.Refused == nil
		})
	}
}

// engineOf returns what an engine says of itself.
func engineOf(t *testing.T, b coord.Backend, name string) revision.Engine {
	t.Helper()
	for _, e := range read(t, b).Engines {
		if e.Name == name {
			return e
		}
	}
	return revision.Engine{}
}

func read(t *testing.T, b coord.Backend) revision.Overview {
	t.Helper()
	seen, err := revision.Read(t.Context(), b)
	if err != nil {
		t.Fatal(err)
	}
	return seen
}

// push pushes files with what is current now.
func push(t *testing.T, b coord.Backend, r revision.Revision, bundle *revision.Bundle) revision.Revision {
	t.Helper()
	seen := read(t, b)
	made, err := revision.Push(t.Context(), b, seen, r, bundle)
	if err != nil {
		t.Fatal(err)
	}
	if made.Number != seen.Current().Number+1 {
		t.Fatalf("pushed %+v after revision %d", made, seen.Current().Number)
	}
	return made
}

func testRevisions(t *testing.T, c Config) {
	b := c.New(t)
	a, other := follow(t, c, b, "a"), follow(t, c, b, "b")
	awaitRunning(t, b, push(t, b, revision.Revision{Author: "ops"}, files("first", "more")), a, other)
	second := push(t, b, revision.Revision{}, files("second"))
	awaitRunning(t, b, second, a, other)

	// One that refuses a revision keeps what it runs, and says why.
	other.setLacks("plugin")
	third := push(t, b, revision.Revision{}, files("third, with a plugin"))
	awaitRunning(t, b, third, a)
	until(t, "b refuses it", func() bool { return engineOf(t, b, "b").HasRefused(third.Ref()) })
	if e := engineOf(t, b, "b"); e.Running != second.Ref() || e.Refused.Error != "this engine has no plugin" {
		t.Errorf("b says %+v, %+v", e, e.Refused)
	}
	back := push(t, b, revision.Revision{Restores: 2}, files("second"))
	awaitRunning(t, b, back, a, other)
	late := follow(t, c, b, "late")
	awaitRunning(t, b, back, late)
	a.wantUsed(t, "first", "second", "third, with a plugin", "second")
	other.wantUsed(t, "first", "second", "second")
	late.wantUsed(t, "second")
}

func testTrials(t *testing.T, c Config) {
	b := c.New(t)
	a, other := follow(t, c, b, "a"), follow(t, c, b, "b")
	first := push(t, b, revision.Revision{}, files("first"))
	awaitRunning(t, b, first, a, other)

	// A rollback ends a trial: only its engine has to use the files of before.
	awaitRunning(t, b, push(t, b, revision.Revision{Engine: "a"}, files("tried")), a)
	awaitRunning(t, b, first, other)
	back := push(t, b, revision.Revision{Restores: 1}, files("first"))
	awaitRunning(t, b, back, a, other)
	if trial := read(t, b).Trial; trial.Engine != "" {
		t.Errorf("there is still the trial %+v", trial)
	}

	// What was tried is not used again by its engine when it becomes current.
	trial := push(t, b, revision.Revision{Engine: "a"}, files("tried again"))
	awaitRunning(t, b, trial, a)
	second := push(t, b, revision.Revision{}, files("tried again"))
	if second.Ref() != trial.Ref() {
		t.Errorf("the trial is %+v, and what is current %+v", trial, second)
	}
	awaitRunning(t, b, second, a, other)
	a.wantUsed(t, "first", "tried", "first", "tried again")
	other.wantUsed(t, "first", "tried again")
}

func testLargeRevisions(t *testing.T, c Config) {
	b := c.New(t)
	noise := make([]byte, revision.MaxSize*15/16) // which is not compressed
	if _, err := rand.NewChaCha8([32]byte{}).Read(noise); err != nil {
		t.Fatal(err)
	}
	pushed := files("first", string(noise))
	compressed, _, err := pushed.Encode()
	if err != nil || len(compressed) < revision.MaxSize*15/16 {
		t.Fatalf("the bundle has %d bytes, %v", len(compressed), err)
	}
	r := push(t, b, revision.Revision{}, pushed)
	if loaded, err := revision.Load(t.Context(), b, r); err != nil || !reflect.DeepEqual(loaded, pushed) {
		t.Errorf("the files are others: %v", err)
	}
}

func testPushesAtOnce(t *testing.T, c Config) {
	b := c.New(t)
	f := follow(t, c, b, "a")
	push(t, b, revision.Revision{}, files("first"))
	seen := read(t, b)
	var pushing sync.WaitGroup
	made := make(chan revision.Revision, 5)
	for i := range cap(made) {
		pushing.Go(func() {
			r, err := revision.Push(t.Context(), b, seen, revision.Revision{Author: fmt.Sprintf("ops-%d", i)}, files(fmt.Sprint(i)))
			switch {
			case err == nil:
				made <- r
			case !strings.Contains(err.Error(), "revision 2 is current, and the push was planned with revision 1: ops-") || !strings.HasSuffix(err.Error(), "push again"):
				t.Errorf("the error of one that was not the first: %v", err)
			}
		})
	}
	pushing.Wait()
	close(made)
	var won []revision.Revision
	for r := range made {
		won = append(won, r)
	}
	if all := read(t, b).History; len(won) != 1 || len(all) != 2 || all[1].Ref() != won[0].Ref() || all[1].Author != won[0].Author {
		t.Fatalf("%d pushes were made, and there are %+v", len(won), all)
	}
	awaitRunning(t, b, won[0], f)
}

// severed is a Backend that loses the reply to each transaction.
type severed struct{ coord.Backend }

func (b severed) Commit(ctx context.Context, all ...coord.Transaction) ([]bool, error) {
	return nil, errors.Join(errCut, context.Cause(ctx), discard(b.Backend.Commit(ctx, all...)))
}

func discard(_ []bool, err error) error { return err }

func testTornPushes(t *testing.T, c Config) {
	b := c.New(t)
	seen := read(t, b)
	_, err := revision.Push(t.Context(), severed{b}, seen, revision.Revision{}, files("first"))
	if err == nil || !strings.HasPrefix(err.Error(), "it is not known whether revision 1 is stored; push again: ") {
		t.Errorf("a push whose reply is lost: %v", err)
	}
	if now := read(t, b); len(now.History) != 1 || now.Current().Err() != nil {
		t.Errorf("there are %+v", now.History)
	}
	if _, err := revision.Push(t.Context(), b, seen, revision.Revision{}, files("first")); err == nil || !strings.Contains(err.Error(), "revision 1 is current") {
		t.Errorf("it is pushed again by an old plan: %v", err)
	}
}
