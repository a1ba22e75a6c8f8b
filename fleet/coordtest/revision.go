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
	"time"

	"github.com/sonde-probe/sonde/fleet/coord"
	"github.com/sonde-probe/sonde/fleet/revision"
)

// follower is a revision.Follower with what it was asked.
type follower struct {
	*revision.Follower
	name string
	end  func()

	mu      sync.Mutex // guards all below
	lacks   string     // a text in the main file of a configuration that it refuses
	used    []string   // the main files of the revisions that it was told to use
	checked int        // calls of Check
	stopped int        // of them, those whose context was done
	hangs   bool       // Check ends with its context only
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

// follow starts a follower.
func follow(t *testing.T, c Config, b coord.Backend, name string) *follower {
	t.Helper()
	f := &follower{name: name}
	followed, err := revision.New(revision.Config{Name: name, Backend: b, TTL: c.TTL, Check: f.check, Use: f.use})
	if err != nil {
		t.Fatal(err)
	}
	f.Follower = followed
	ctx, stop := context.WithCancel(t.Context())
	var running sync.WaitGroup
	running.Go(func() { f.Run(ctx) })
	f.end = func() { stop(); running.Wait() }
	t.Cleanup(f.end)
	until(t, name+" follows the configuration", func() bool {
		engines, err := revision.Engines(t.Context(), b)
		return err == nil && slices.ContainsFunc(engines, func(e revision.Engine) bool { return e.Name == name })
	})
	return f
}

func (f *follower) check(ctx context.Context, _ revision.Revision, b *revision.Bundle) error {
	f.mu.Lock()
	f.checked++
	lacks, hangs := f.lacks, f.hangs
	f.mu.Unlock()
	if hangs {
		<-ctx.Done()
		f.mu.Lock()
		f.stopped++
		f.mu.Unlock()
		return ctx.Err()
	}
	if text := string(b.Files[mainFile]); lacks != "" && strings.Contains(text, lacks) {
		return fmt.Errorf("this engine has no %s", lacks)
	}
	return nil
}

func (f *follower) use(_ context.Context, _ revision.Revision, b *revision.Bundle, _ bool) error {
	f.mu.Lock()
	defer f.mu.Unlock()
	f.used = append(f.used, string(b.Files[mainFile]))
	return nil
}

// usedSoFar returns what the follower was told to use, and how often it was asked to check.
func (f *follower) usedSoFar() (used []string, checked int) {
	f.mu.Lock()
	defer f.mu.Unlock()
	return slices.Clone(f.used), f.checked
}

// awaitRunning waits until followers say that they run a revision.
func awaitRunning(t *testing.T, b coord.Backend, r revision.Revision, engines ...*follower) {
	t.Helper()
	until(t, fmt.Sprintf("engines run revision %d", r.Number), func() bool {
		all, err := revision.Engines(t.Context(), b)
		return err == nil && len(all) == len(engines) &&
			!slices.ContainsFunc(all, func(e revision.Engine) bool { return e.Running != r.Ref() })
	})
}

// push pushes files for which the plan was made with a base.
func push(t *testing.T, b coord.Backend, base int64, bundle *revision.Bundle) revision.Revision {
	t.Helper()
	r, err := revision.Push(t.Context(), b, revision.Request{Bundle: bundle, Base: base, Author: "ops"})
	if err != nil {
		t.Fatal(err)
	}
	if r.Number != base+1 {
		t.Fatalf("pushed %+v after revision %d", r, base)
	}
	return r
}

// leftovers returns the keys of configurations other than revisions, those of engines, and what revisions
// refer to.
func leftovers(t *testing.T, b coord.Backend) (left []string) {
	t.Helper()
	used, err := revision.History(t.Context(), b)
	if err != nil {
		t.Fatal(err)
	}
	entries, _, err := b.Range(t.Context(), "config/")
	if err != nil {
		t.Fatal(err)
	}
	for _, e := range entries {
		isUsed := strings.HasPrefix(e.Key, "config/engine/") || strings.HasPrefix(e.Key, "config/shared/revision/")
		for _, r := range used {
			isUsed = isUsed || e.Key == "config/bundle/"+r.Bundle.ID || strings.HasPrefix(e.Key, "config/part/"+r.Bundle.ID+"/")
		}
		if !isUsed {
			left = append(left, e.Key)
		}
	}
	return left
}

func testRevisions(t *testing.T, c Config) {
	b := c.New(t)
	a, other := follow(t, c, b, "a"), follow(t, c, b, "b")
	first := push(t, b, 0, files("first", "more"))
	if first.Accepted != 2 || first.Author != "ops" || first.Restores != 0 {
		t.Errorf("pushed %+v", first)
	}
	awaitRunning(t, b, first, a, other)
	second := push(t, b, 1, files("second"))
	awaitRunning(t, b, second, a, other)

	other.mu.Lock()
	other.lacks = "plugin"
	other.mu.Unlock()
	_, err := revision.Push(t.Context(), b, revision.Request{Bundle: files("third, with a plugin"), Base: 2})
	var refused *revision.RefusedError
	if !errors.As(err, &refused) || err.Error() != "1 of 2 engines refused it, among them b: this engine has no plugin" {
		t.Errorf("a configuration that an engine cannot use: %v", err)
	}
	if current, err := revision.Current(t.Context(), b); err != nil || current.Ref() != second.Ref() {
		t.Errorf("revision %d is current, %v", current.Number, err)
	}
	if left := leftovers(t, b); left != nil {
		t.Errorf("left over: %q", left)
	}

	back, err := revision.Push(t.Context(), b, revision.Request{Restore: 1, Base: 2, Message: "back"})
	if err != nil || back.Number != 3 || back.Restores != 1 || back.Message != "back" || back.Bundle != first.Bundle {
		t.Fatalf("rolled back to %+v, %v", back, err)
	}
	awaitRunning(t, b, back, a, other)
	late := follow(t, c, b, "late")
	awaitRunning(t, b, back, a, other, late)
	for _, f := range []*follower{a, other} {
		if used, checked := f.usedSoFar(); !slices.Equal(used, []string{"first", "second", "first"}) || checked != 4 {
			t.Errorf("%s has used %q, and checked %d", f.name, used, checked)
		}
	}
	if used, checked := late.usedSoFar(); !slices.Equal(used, []string{"first"}) || checked != 0 {
		t.Errorf("%s has used %q, and checked %d", late.name, used, checked)
	}
}

func testLargeRevisions(t *testing.T, c Config) {
	b := c.New(t)
	noise := make([]byte, 2<<20) // it is not compressed, and does not fit into one request
	if _, err := rand.NewChaCha8([32]byte{}).Read(noise); err != nil {
		t.Fatal(err)
	}
	pushed := files("first", string(noise), "more")
	r := push(t, b, 0, pushed)
	if loaded, err := revision.Load(t.Context(), b, r); err != nil || !reflect.DeepEqual(loaded, pushed) {
		t.Errorf("the files are others: %v", err)
	}
	if parts, _, err := b.Range(t.Context(), "config/part/"); err != nil || len(parts) < 4 {
		t.Errorf("%d parts, %v", len(parts), err)
	}
}

func testPushesAtOnce(t *testing.T, c Config) {
	b := c.New(t)
	f := follow(t, c, b, "a")
	push(t, b, 0, files("first"))
	var pushing sync.WaitGroup
	made := make(chan revision.Revision, 5)
	for i := range cap(made) {
		pushing.Go(func() {
			r, err := revision.Push(t.Context(), b, revision.Request{Bundle: files(fmt.Sprint(i)), Base: 1, Author: fmt.Sprintf("ops-%d", i)})
			var conflict *revision.ConflictError
			switch {
			case err == nil:
				made <- r
			case !errors.As(err, &conflict) || !strings.Contains(err.Error(), "ops-") || !strings.HasSuffix(err.Error(), "push again"):
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
	all, err := revision.History(t.Context(), b)
	if err != nil || len(won) != 1 || len(all) != 2 || !reflect.DeepEqual(all[1], won[0]) {
		t.Fatalf("%d pushes were made, and there are %+v, %v", len(won), all, err)
	}
	awaitRunning(t, b, won[0], f)
	if left := leftovers(t, b); left != nil {
		t.Errorf("left over: %q", left)
	}
}

// severed is a Backend that is cut off, so that leases are not ended either.
type severed struct{ *cutOff }

func (b severed) Revoke(ctx context.Context, l coord.Lease) error {
	if b.isCut.Load() {
		return errCut
	}
	return b.cutOff.Revoke(ctx, l)
}

func testTornPushes(t *testing.T, c Config) {
	b := c.New(t)
	f := follow(t, c, b, "a")
	f.mu.Lock()
	f.hangs = true
	f.mu.Unlock()
	checks := func() (checked, stopped int) {
		f.mu.Lock()
		defer f.mu.Unlock()
		return f.checked, f.stopped
	}
	begin := func(to coord.Backend, checked int) (stop func() error) {
		ctx, cancel := context.WithCancel(t.Context())
		ended := make(chan error, 1)
		go func() {
			_, err := revision.Push(ctx, to, revision.Request{Bundle: files("torn"), Author: "ops"})
			ended <- err
		}()
		until(t, "the engine checks what is proposed", func() bool { n, _ := checks(); return n == checked })
		return func() error { cancel(); return <-ended }
	}

	// A push that is interrupted withdraws what it has proposed.
	stop := begin(b, 1)
	if err := stop(); !errors.Is(err, context.Canceled) {
		t.Errorf("an interrupted push: %v", err)
	}
	until(t, "the check was cancelled", func() bool { _, stopped := checks(); return stopped == 1 })
	if left := leftovers(t, b); left != nil {
		t.Errorf("left over: %q", left)
	}

	// What a push has proposed that was cut off ends with its lease.
	cut := severed{&cutOff{Backend: b}}
	stop = begin(cut, 2)
	if _, err := revision.Push(t.Context(), b, revision.Request{Bundle: files("another")}); err == nil || !strings.HasPrefix(err.Error(), "ops is proposing revision 1 since ") {
		t.Errorf("a push beside another: %v", err)
	}
	cut.isCut.Store(true)
	if err := stop(); err == nil {
		t.Error("a push that was cut off has ended well")
	}
	if left := leftovers(t, b); !slices.Contains(left, "config/shared/proposal") {
		t.Errorf("it was not cut off: %q", left)
	}
	until(t, "the check was cancelled", func() bool { _, stopped := checks(); return stopped == 2 })
	if all, err := revision.History(t.Context(), b); err != nil || len(all) != 0 {
		t.Errorf("there are %+v, %v", all, err)
	}
	f.mu.Lock()
	f.hangs = false
	f.mu.Unlock()
	awaitRunning(t, b, push(t, b, 0, files("first")), f)
	if left := leftovers(t, b); left != nil {
		t.Errorf("left over: %q", left)
	}
}

func testSilentEngines(t *testing.T, c Config) {
	b := c.New(t)
	f, hanging := follow(t, c, b, "a"), follow(t, c, b, "hanging")
	hanging.mu.Lock()
	hanging.hangs = true
	hanging.mu.Unlock()
	r := revision.Request{Bundle: files("first"), Timeout: time.Second}
	hasAnswered := false // a, when Push looked last
	r.Report = func(proposal revision.Revision, engines []revision.Engine) {
		hasAnswered = slices.ContainsFunc(engines, func(e revision.Engine) bool { return e.Name == "a" && e.Answer != nil && e.Answer.ID == proposal.ID })
	}
	_, err := revision.Push(t.Context(), b, r)
	var refused *revision.RefusedError
	for errors.As(err, &refused) && slices.Contains(refused.Silent, "a") && !hasAnswered && r.Timeout < patience {
		r.Timeout *= 2 // it was too short for this machine
		_, err = revision.Push(t.Context(), b, r)
	}
	if !errors.As(err, &refused) || !slices.Equal(refused.Silent, []string{"hanging"}) || err.Error() != "1 of 2 engines have not answered, among them hanging" {
		t.Errorf("an engine does not answer: %v", err)
	}
	r.IgnoreSilent = true
	made, err := revision.Push(t.Context(), b, r)
	for slices.Contains(made.Silent, "a") && !hasAnswered && r.Timeout < patience {
		r.Timeout, r.Base = 2*r.Timeout, made.Number
		made, err = revision.Push(t.Context(), b, r)
	}
	if err != nil || made.Accepted != 1 || !slices.Equal(made.Silent, []string{"hanging"}) {
		t.Errorf("pushed %+v, %v", made, err)
	}
	awaitRunning(t, b, made, f, hanging)
	f.end()
	hanging.end()
	r = revision.Request{Bundle: files("second"), Base: made.Number}
	if _, err := revision.Push(t.Context(), b, r); err == nil || err.Error() != "no engine follows the configuration, so that none has checked it" {
		t.Errorf("a push without engines: %v", err)
	}
	r.IgnoreSilent = true
	if _, err := revision.Push(t.Context(), b, r); err != nil {
		t.Errorf("a push without engines: %v", err)
	}
}
