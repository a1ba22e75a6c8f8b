package revision_test

import (
	"bytes"
	"compress/gzip"
	"context"
	"crypto/sha256"
	"encoding/hex"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"log/slog"
	"math/rand/v2"
	"slices"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"testing/synctest"
	"time"

	"github.com/sonde-probe/sonde/fleet/coord"
	"github.com/sonde-probe/sonde/fleet/revision"
	"github.com/sonde-probe/sonde/tests/coordtest"
	"github.com/sonde-probe/sonde/tests/tier"
)

// files returns a bundle of one file.
func files(text string) *revision.Bundle {
	return &revision.Bundle{Sources: []string{"config.hcl"}, Files: map[string][]byte{"config.hcl": []byte(text)}}
}

func read(t *testing.T, b coord.Backend) revision.Overview {
	t.Helper()
	seen, err := revision.Read(t.Context(), b)
	if err != nil {
		t.Fatal(err)
	}
	return seen
}

// pushAs pushes a text on top of the current revision.
func pushAs(t *testing.T, b coord.Backend, r revision.Revision, text string) revision.Revision {
	t.Helper()
	r, err := revision.Push(t.Context(), b, read(t, b), r, files(text))
	if err != nil {
		t.Fatal(err)
	}
	return r
}

func push(t *testing.T, b coord.Backend, text string) revision.Revision {
	t.Helper()
	return pushAs(t, b, revision.Revision{}, text)
}

func commit(t *testing.T, b coord.Backend, change coord.Change) {
	t.Helper()
	if _, err := b.Commit(t.Context(), coord.Transaction{Then: []coord.Change{change}}); err != nil {
		t.Fatal(err)
	}
}

// replace replaces the stored value of a revision.
func replace(t *testing.T, b coord.Backend, r revision.Revision) {
	t.Helper()
	value, err := json.Marshal(r)
	if err != nil {
		t.Fatal(err)
	}
	commit(t, b, coord.Change{Key: fmt.Sprintf("config/shared/revision/%010d", r.Number), Value: value})
}

// running puts the status of another engine.
func running(t *testing.T, b coord.Backend, name string, r revision.Ref) {
	t.Helper()
	value, err := json.Marshal(revision.Engine{Running: r})
	if err != nil {
		t.Fatal(err)
	}
	commit(t, b, coord.Change{Key: "config/shared/engine/" + name, Value: value})
}

// engine is the engine "a", which follows the configuration.
type engine struct {
	*revision.Follower
	end func()

	mu       sync.Mutex // guards all below
	wrong    error      // the error that Use returns
	during   func()     // called during the next call of Use
	used     []string
	outdated []bool
	log      strings.Builder // guarded by its handler
}

// follow starts an engine that already runs a revision, and returns the error wrong for each other revision.
func follow(t *testing.T, b coord.Backend, running revision.Ref, wrong error) *engine {
	t.Helper()
	e := &engine{wrong: wrong}
	log := slog.New(slog.NewTextHandler(&e.log, nil))
	member, err := coord.New(coord.Config{Name: "a", Backend: b, Logger: log})
	if err != nil {
		t.Fatal(err)
	}
	e.Follower = revision.New(revision.Config{
		Coordinator: member, Running: running, Use: e.use, Outdated: e.setOutdated, Logger: log,
		Redact: func(text string) string { return strings.ReplaceAll(text, "hunter22", "(sensitive)") },
	})
	ctx, stop := context.WithCancel(t.Context())
	var parts sync.WaitGroup
	parts.Go(func() { member.Run(ctx) })
	parts.Go(func() { e.Run(ctx) })
	e.end = func() { stop(); parts.Wait() }
	t.Cleanup(e.end)
	return e
}

func (e *engine) use(_ context.Context, r revision.Revision, files *revision.Bundle, force bool) error {
	e.mu.Lock()
	defer e.mu.Unlock()
	text := fmt.Sprintf("%d: %s", r.Number, files.Files["config.hcl"])
	if force {
		text += ", forced"
	}
	e.used = append(e.used, text)
	if e.during != nil {
		e.during()
		e.during = nil
	}
	return e.wrong
}

func (e *engine) setOutdated(is bool) {
	e.mu.Lock()
	defer e.mu.Unlock()
	e.outdated = append(e.outdated, is)
}

// fail sets the error that Use returns.
func (e *engine) fail(err error) {
	e.mu.Lock()
	defer e.mu.Unlock()
	e.wrong = err
}

// settle waits until everything that was begun has finished, and the leases of exited engines have expired.
func settle() {
	time.Sleep(3 * coord.DefaultTTL)
	synctest.Wait()
}

// wantUsed checks the revisions that the engine was given since the last call.
func (e *engine) wantUsed(t *testing.T, want ...string) {
	t.Helper()
	settle()
	e.mu.Lock()
	defer e.mu.Unlock()
	if !slices.Equal(e.used, want) {
		t.Errorf("it was given %q, want %q", e.used, want)
	}
	e.used = nil
}

// wantOutdated checks the calls of Outdated so far.
func (e *engine) wantOutdated(t *testing.T, when string, want ...bool) {
	t.Helper()
	settle()
	e.mu.Lock()
	defer e.mu.Unlock()
	if !slices.Equal(e.outdated, want) {
		t.Errorf("%s: outdated %v, want %v", when, e.outdated, want)
	}
}

// says returns the statuses of the engines in a store.
func says(t *testing.T, b coord.Backend) string {
	t.Helper()
	settle()
	var texts []string
	for _, e := range read(t, b).Engines {
		text := fmt.Sprintf("%s runs %d", e.Name, e.Running.Number)
		if e.Refused != nil {
			text += fmt.Sprintf(", not %d: %s", e.Refused.Number, e.Refused.Error)
		}
		texts = append(texts, text)
	}
	return strings.Join(texts, "; ")
}

func wantSays(t *testing.T, b coord.Backend, want string) {
	t.Helper()
	if got := says(t, b); got != want {
		t.Errorf("engines say %q, want %q", got, want)
	}
}

func TestBundlesAreChecked(t *testing.T) {
	large := make([]byte, revision.MaxContent/2+1)
	many := files("x")
	for i := range revision.MaxFiles {
		many.Files[fmt.Sprint(i)] = nil
	}
	noise := make([]byte, 2<<20) // random, so that it cannot be compressed
	if _, err := rand.NewChaCha8([32]byte{}).Read(noise); err != nil {
		t.Fatal(err)
	}
	tooLarge := files("x")
	tooLarge.Files["plugins/a.wasm"] = noise
	for want, bundle := range map[string]*revision.Bundle{
		"it has no configuration file":            {},
		`configuration file "a.hcl" is missing`:   {Sources: []string{"a.hcl"}},
		`it has configuration file "a.hcl" twice`: {Sources: []string{"a.hcl", "a.hcl"}, Files: map[string][]byte{"a.hcl": nil}},
		`file name "../a.hcl" must be relative`:   {Sources: []string{"../a.hcl"}, Files: map[string][]byte{"../a.hcl": nil}},
		`file name "/etc/passwd" must be re`:      {Sources: []string{"/etc/passwd"}, Files: map[string][]byte{"/etc/passwd": nil}},
		`file name "a\\b" must be relative`:       {Sources: []string{`a\b`}, Files: map[string][]byte{`a\b`: nil}},
		"it has 4097 files, at most 4096 are":     many,
		"its files have 64.0 MiB together, at":    {Sources: []string{"a"}, Files: map[string][]byte{"a": large, "b": large}},
		"it has 2.0 MiB when compressed, and etcd takes 1.4 MiB at most: install large files, such as plugins, on each engine, and name them by absolute paths; the largest is \"plugins/a.wasm\" with 2.0 MiB": tooLarge,
	} {
		b := coordtest.NewLocal()
		_, err := revision.Push(t.Context(), b, revision.Overview{}, revision.Revision{}, bundle)
		if err == nil || !strings.Contains(err.Error(), "the configuration cannot be pushed: "+want) {
			t.Errorf("%v, want %q", err, want)
		}
		if left, _, _ := b.Range(t.Context(), ""); len(left) > 0 {
			t.Errorf("it left %v", left)
		}
	}
}

// Anyone who can write to a store can write other bundles than Push does.
func TestABundleOfAStrangerIsChecked(t *testing.T) {
	tier.Slow(t)
	for text, want := range map[string]string{
		`{"sources": ["../../etc/cron.d/x"], "files": {"../../etc/cron.d/x": ""}}`:               "must be relative",
		`{"sources": ["a.hcl"], "files": {"a.hcl": "", "/etc/passwd": ""}}`:                      "must be relative",
		`{"sources": ["a.hcl"], "files": {"a.hcl": "", "b/../../c": ""}}`:                        "must be relative",
		`{"sources": ["a.hcl"], "files": {"a.hcl": "", "` + strings.Repeat("b", 600) + `": ""}}`: "must be relative",
		`{"sources": ["a.hcl"], "files": {}}`:                                                    "is missing",
		`{"sources": [], "files": {"a.hcl": ""}}`:                                                "it has no configuration file",
		`[`: "unexpected end",
		`{"sources": ["a.hcl"], "files": {"a.hcl": ""}}` + strings.Repeat(" ", 2*revision.MaxContent): "wrong digest", // not read completely
	} {
		var compressed bytes.Buffer
		z, err := gzip.NewWriterLevel(&compressed, gzip.BestSpeed)
		if err != nil {
			t.Fatal(err)
		}
		if _, err := io.WriteString(z, text); err != nil {
			t.Fatal(err)
		}
		if err := z.Close(); err != nil {
			t.Fatal(err)
		}
		sum := sha256.Sum256([]byte(text))
		if b, err := revision.Decode(compressed.Bytes(), hex.EncodeToString(sum[:])); err == nil || !strings.Contains(err.Error(), want) {
			t.Errorf("%.80s: got %v, %v, want %q", text, b, err, want)
		}
	}
}

// A push changes nothing if the revision on which it was planned is no longer the latest.
func TestAStalePushIsRefused(t *testing.T) {
	for want, meanwhile := range map[string]func(t *testing.T, b coord.Backend){
		"revision 2 is current, and the push was planned with revision 1: ops pushed it at ": func(t *testing.T, b coord.Backend) {
			pushAs(t, b, revision.Revision{Author: "ops"}, "second")
		},
		"revision 2 is a trial at \"b\", and the push was planned with revision 1: ops pushed it at ": func(t *testing.T, b coord.Backend) {
			pushAs(t, b, revision.Revision{Author: "ops", Message: "why", Engine: "b"}, "tried")
		},
		"there is no revision, and the push was planned with revision 1: the store was emptied or is another one": func(t *testing.T, b coord.Backend) {
			commit(t, b, coord.Change{Key: "config/shared/revision/0000000001", Delete: true})
		},
		"revision 1 is current, and the push was planned with revision 1: someone pushed it at ": func(t *testing.T, b coord.Backend) { // in a restored store
			commit(t, b, coord.Change{Key: "config/shared/revision/0000000001", Delete: true})
			push(t, b, "another")
		},
	} {
		for _, engine := range []string{"", "a"} {
			b := coordtest.NewLocal()
			push(t, b, "first")
			seen := read(t, b)
			meanwhile(t, b)
			before, _, _ := b.Range(t.Context(), "")
			_, err := revision.Push(t.Context(), b, seen, revision.Revision{Engine: engine}, files("stale"))
			if err == nil || !strings.Contains(err.Error(), want) || !strings.HasSuffix(err.Error(), "push again") {
				t.Errorf("%q: %v, want %q", engine, err, want)
			}
			if after, _, _ := b.Range(t.Context(), ""); len(after) != len(before) {
				t.Errorf("%q: there were %d entries, and now %d", engine, len(before), len(after))
			}
		}
	}
}

func TestHistoryIsBounded(t *testing.T) {
	b := coordtest.NewLocal()
	want := func(first, current, latest int64) {
		t.Helper()
		seen := read(t, b)
		if len(seen.History) != revision.MaxHistory || seen.History[0].Number != first || seen.Current().Number != current || seen.Latest().Number != latest {
			t.Fatalf("%d revisions from %d to %d, of which %d is current", len(seen.History), seen.History[0].Number, seen.Latest().Number, seen.Current().Number)
		}
		if all, _, err := b.Range(t.Context(), "config/"); err != nil || len(all) != 2*revision.MaxHistory {
			t.Errorf("%d entries, %v", len(all), err)
		}
		for _, r := range seen.History {
			if loaded, err := revision.Load(t.Context(), b, r); err != nil || string(loaded.Files["config.hcl"]) != fmt.Sprint("text ", r.Number) {
				t.Errorf("revision %d has %v, %v", r.Number, loaded, err)
			}
		}
	}
	for i := range revision.MaxHistory + 5 {
		push(t, b, fmt.Sprint("text ", i+1))
	}
	want(6, 15, 15)
	for i := range revision.MaxHistory + 5 {
		pushAs(t, b, revision.Revision{Engine: "a"}, fmt.Sprint("text ", i+16))
	}
	want(7, 15, 30) // a trial replaces the previous trial
	push(t, b, "text 31")
	want(7, 31, 31)
	push(t, b, "text 32")
	want(8, 32, 32)
}

// An engine keeps its configuration while the store has none that it can use.
func TestAnEngineKeepsWhatItRuns(t *testing.T) {
	for want, damage := range map[string]func(t *testing.T, b coord.Backend, r revision.Revision){
		"its files are missing": func(t *testing.T, b coord.Backend, _ revision.Revision) {
			commit(t, b, coord.Change{Key: "config/files/0000000002", Delete: true})
		},
		"EOF": func(t *testing.T, b coord.Backend, _ revision.Revision) {
			commit(t, b, coord.Change{Key: "config/files/0000000002"})
		},
		"gzip: invalid header": func(t *testing.T, b coord.Backend, _ revision.Revision) {
			commit(t, b, coord.Change{Key: "config/files/0000000002", Value: make([]byte, 99)})
		},
		"wrong digest": func(t *testing.T, b coord.Backend, r revision.Revision) {
			r.Digest = strings.Repeat("0", 64)
			replace(t, b, r)
		},
		"it says that it is revision 9": func(t *testing.T, b coord.Backend, _ revision.Revision) {
			value, _ := json.Marshal(revision.Revision{Format: 1, Number: 9})
			commit(t, b, coord.Change{Key: "config/shared/revision/0000000002", Value: value})
		},
		"invalid character": func(t *testing.T, b coord.Backend, _ revision.Revision) {
			commit(t, b, coord.Change{Key: "config/shared/revision/0000000002", Value: []byte("?")})
		},
		"the revision was written by a later version of this program: update this one": func(t *testing.T, b coord.Backend, r revision.Revision) {
			r.Format = 4
			replace(t, b, r)
		},
	} {
		synctest.Test(t, func(t *testing.T) {
			b := coordtest.NewLocal()
			first, second := push(t, b, "first"), push(t, b, "second")
			damage(t, b, second)
			e := follow(t, b, first.Ref(), nil)
			e.wantUsed(t)
			if got := says(t, b); !strings.HasPrefix(got, "a runs 1, not 2: revision 2: ") || !strings.Contains(got, want) {
				t.Errorf("it says %q, want %q", got, want)
			}
			push(t, b, "first")
			e.wantUsed(t, "3: first")
			wantSays(t, b, "a runs 3")
		})
	}
}

func TestWhatAnEngineSaysIsRedactedAndBounded(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		b := coordtest.NewLocal()
		first := push(t, b, "first")
		push(t, b, "second")
		wrong := errors.New("no plugin with hunter22\x1b" + strings.Repeat("x", 2*revision.MaxError))
		e := follow(t, b, first.Ref(), wrong)
		e.wantUsed(t, "2: second")
		if got := says(t, b); !strings.HasPrefix(got, "a runs 1, not 2: no plugin with (sensitive)\uFFFDxx") || len(got) > revision.MaxError+100 {
			t.Errorf("it says %q", got)
		}
	})
}

func TestARefusedRevisionIsTriedAgainWhenAsked(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		b := coordtest.NewLocal()
		e := follow(t, b, push(t, b, "first").Ref(), errors.New("no plugin"))
		wantSays(t, b, "a runs 1")
		e.Again(true) // it has refused nothing
		second := push(t, b, "second")
		e.wantUsed(t, "2: second")
		wantSays(t, b, "a runs 1, not 2: no plugin")
		time.Sleep(time.Hour)
		e.wantUsed(t)
		e.Again(false)
		e.wantUsed(t, "2: second")
		e.fail(nil)
		e.Again(true)
		e.wantUsed(t, "2: second, forced")
		wantSays(t, b, "a runs 2")
		if own, seen := e.Status(); own.Running != second.Ref() || seen.Current().Number != 2 {
			t.Errorf("its status is %+v, %+v", own, seen)
		}
	})
}

// A request that arrives while the revision is being tried is not lost.
func TestARefusedRevisionIsTriedOnceMoreThanItWasAskedFor(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		b := coordtest.NewLocal()
		e := follow(t, b, push(t, b, "first").Ref(), errors.New("too many targets"))
		push(t, b, "second")
		e.wantUsed(t, "2: second")
		e.mu.Lock()
		e.during = func() { e.Again(true) }
		e.mu.Unlock()
		e.Again(false)
		e.wantUsed(t, "2: second", "2: second, forced")
	})
}

// Anyone who can write to a store can write statuses of engines.
func TestWhatEnginesSayIsBounded(t *testing.T) {
	b := coordtest.NewLocal()
	value, _ := json.Marshal(revision.Engine{Refused: &revision.Refusal{Error: "\x1b" + strings.Repeat("x", 2*revision.MaxError)}})
	commit(t, b, coord.Change{Key: "config/shared/engine/a", Value: value})
	commit(t, b, coord.Change{Key: "config/shared/engine/b", Value: []byte("?")})
	all := read(t, b).Engines
	if len(all) != 2 || len(all[0].Refused.Error) > revision.MaxError || strings.Contains(all[0].Refused.Error, "\x1b") {
		t.Errorf("there are %+v", all)
	}
	for _, e := range all[1:] {
		if e.Running.Number != 0 || e.Name == "" {
			t.Errorf("%+v is known", e)
		}
	}
}

// A forced revision is forced for engines that move forward to it, but not for those that go back to it.
func TestAForcedRevisionIsUsedWithoutTheGuard(t *testing.T) {
	for number, want := range map[int64]string{0: "2: second, forced", 1: "2: second, forced", 3: "2: second"} {
		synctest.Test(t, func(t *testing.T) {
			b := coordtest.NewLocal()
			push(t, b, "first")
			pushAs(t, b, revision.Revision{Force: true}, "second")
			follow(t, b, revision.Ref{Number: number, Digest: "other"}, nil).wantUsed(t, want)
		})
	}
}

// away is a Backend that can be unreachable.
type away struct {
	*coordtest.Local
	isAway atomic.Bool
}

var errAway = errors.New("away")

func (b *away) Commit(ctx context.Context, all ...coord.Transaction) ([]bool, error) {
	if b.isAway.Load() {
		return nil, errAway
	}
	return b.Local.Commit(ctx, all...)
}

func (b *away) Get(ctx context.Context, key string) (coord.Entry, error) {
	if b.isAway.Load() {
		return coord.Entry{}, errAway
	}
	return b.Local.Get(ctx, key)
}

func (b *away) Range(ctx context.Context, prefix string) ([]coord.Entry, coord.Revision, error) {
	if b.isAway.Load() {
		return nil, 0, errAway
	}
	return b.Local.Range(ctx, prefix)
}

func (b *away) Grant(ctx context.Context, ttl time.Duration) (coord.Lease, error) {
	if b.isAway.Load() {
		return 0, errAway
	}
	return b.Local.Grant(ctx, ttl)
}

func (b *away) KeepAlive(ctx context.Context, l coord.Lease) error {
	if b.isAway.Load() {
		return errAway
	}
	return b.Local.KeepAlive(ctx, l)
}

func TestAnEngineGoesOnWhileTheStoreIsAway(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		b := &away{Local: coordtest.NewLocal()}
		first := push(t, b, "first")
		b.isAway.Store(true)
		e := follow(t, b, first.Ref(), nil) // it was restarted with its copy of the first revision
		e.wantUsed(t)
		e.wantOutdated(t, "the store is away")
		b.isAway.Store(false)
		e.wantUsed(t)
		e.wantOutdated(t, "the store is there", false)
		wantSays(t, b.Local, "a runs 1")

		b.isAway.Store(true)
		wantSays(t, b.Local, "") // its lease has expired
		if own, _ := e.Status(); own.Running != first.Ref() {
			t.Errorf("it runs %+v", own.Running)
		}
		b.isAway.Store(false)
		push(t, b.Local, "second")
		e.wantUsed(t, "2: second")
		wantSays(t, b.Local, "a runs 2")

		entries, _, err := b.Range(t.Context(), "config/")
		if err != nil {
			t.Fatal(err)
		}
		for _, entry := range entries { // empties the store
			commit(t, b, coord.Change{Key: entry.Key, Delete: true})
		}
		e.wantUsed(t)
		if own, _ := e.Status(); own.Running.Number != 2 {
			t.Errorf("it runs %+v", own.Running)
		}
	})
}

// An operator's request stays in force until the revision could be read, and does not apply to later revisions.
func TestARefusedRevisionIsTriedAgainOnceTheStoreAnswers(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		b := &away{Local: coordtest.NewLocal()}
		e := follow(t, b, push(t, b, "first").Ref(), errors.New("no plugin"))
		push(t, b, "second")
		e.wantUsed(t, "2: second")
		b.isAway.Store(true)
		e.Again(true)
		time.Sleep(time.Second)
		e.Again(false) // does not revoke the earlier request
		e.wantUsed(t)
		b.isAway.Store(false)
		e.wantUsed(t, "2: second, forced")

		b.isAway.Store(true)
		e.Again(true)
		push(t, b.Local, "third")
		settle()
		b.isAway.Store(false)
		settle()
		e.mu.Lock()
		defer e.mu.Unlock()
		if last := e.used[len(e.used)-1]; last != "3: third" { // the second may have been read before
			t.Errorf("it was given %q", e.used)
		}
	})
}

// An engine that has refused the current revision is outdated while at least half of the engines use it.
func TestAnEngineIsOutdatedWhileHalfOfTheEnginesUseTheCurrentRevision(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		b := coordtest.NewLocal()
		e := follow(t, b, revision.Ref{}, nil)
		e.wantOutdated(t, "no revision", false)
		first := push(t, b, "first")
		e.wantOutdated(t, "it uses the first", false)
		e.fail(errors.New("cannot be used"))
		second := push(t, b, "second")
		e.wantOutdated(t, "it refuses the second, which no other uses", false)
		running(t, b, "b", second.Ref())
		e.wantOutdated(t, "one of two uses the second", false, true)
		running(t, b, "c", first.Ref())
		e.wantOutdated(t, "one of three uses the second", false, true, false)
		running(t, b, "d", second.Ref())
		e.wantOutdated(t, "two of four use the second", false, true, false, true)
		e.fail(nil)
		push(t, b, "third")
		e.wantOutdated(t, "it uses the third", false, true, false, true, false)
		e.fail(errors.New("cannot be used"))
		pushAs(t, b, revision.Revision{Engine: "a"}, "fourth")
		e.wantOutdated(t, "it refuses what only it is to run", false, true, false, true, false)
		wantSays(t, b, "a runs 3, not 4: cannot be used; b runs 2; c runs 1; d runs 2")
	})
}

// An engine of an earlier version of this program cannot read revisions that a later one has pushed.
func TestAnEngineThatIsTooOldForTheCurrentRevisionIsOutdated(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		b := coordtest.NewLocal()
		first, second := push(t, b, "first"), push(t, b, "second")
		ref := second.Ref()
		second.Format = 4
		replace(t, b, second)
		e := follow(t, b, first.Ref(), nil)
		e.wantOutdated(t, "no other engine uses it", false)
		running(t, b, "b", ref)
		e.wantOutdated(t, "another engine uses it", false, true)
	})
}

// A trial that this engine cannot read, such as one of a later version, is still a trial on another engine.
func TestATrialOfALaterVersionConcernsItsEngineOnly(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		b := coordtest.NewLocal()
		first := push(t, b, "first")
		trial := pushAs(t, b, revision.Revision{Engine: "b"}, "tried")
		running(t, b, "b", trial.Ref())
		trial.Format = 4
		replace(t, b, trial)
		e := follow(t, b, first.Ref(), nil)
		e.wantOutdated(t, "another engine tries it", false)
		wantSays(t, b, "a runs 1; b runs 2")
	})
}

// A revision that cannot be decoded may have been a trial on another engine.
func TestAnEngineIsNotOutdatedByADamagedRevision(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		b := coordtest.NewLocal()
		first := push(t, b, "first")
		trial := pushAs(t, b, revision.Revision{Engine: "b"}, "tried")
		running(t, b, "b", trial.Ref())
		commit(t, b, coord.Change{Key: "config/shared/revision/0000000002", Value: []byte("?")})
		e := follow(t, b, first.Ref(), nil)
		e.wantOutdated(t, "one of two engines uses it", false)
		if got := says(t, b); !strings.HasPrefix(got, "a runs 1, not 2: revision 2: the revision is damaged") {
			t.Errorf("it says %q", got)
		}
	})
}

// unleased is a Backend that grants no lease until it is allowed to.
type unleased struct {
	*coordtest.Local
	mayGrant atomic.Bool
}

func (b *unleased) Grant(ctx context.Context, ttl time.Duration) (coord.Lease, error) {
	if !b.mayGrant.Load() {
		return 0, errAway
	}
	return b.Local.Grant(ctx, ttl)
}

// A push waits for the engines that the store shows. Use may take as long as a compilation.
func TestAnEngineIsShownWhileItBeginsToUseARevision(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		b := &unleased{Local: coordtest.NewLocal()}
		e := follow(t, b, push(t, b, "first").Ref(), nil)
		wantSays(t, b, "") // it has no lease
		var seen revision.Overview
		used := make(chan struct{})
		e.mu.Lock()
		e.during = func() {
			b.mayGrant.Store(true)
			time.Sleep(3 * coord.DefaultTTL)
			seen = read(t, b)
			close(used)
		}
		e.mu.Unlock()
		push(t, b, "second")
		<-used
		if len(seen.Engines) != 1 || seen.Engines[0].Running.Number != 1 {
			t.Errorf("engines are %+v", seen.Engines)
		}
		wantSays(t, b, "a runs 2")
	})
}

// forbidden is a Backend that does not let the engine read or write keys with a prefix.
type forbidden struct {
	*coordtest.Local
	prefix string
}

var errForbidden = errors.New("permission denied")

func (b forbidden) Get(ctx context.Context, key string) (coord.Entry, error) {
	if strings.HasPrefix(key, b.prefix) {
		return coord.Entry{}, errForbidden
	}
	return b.Local.Get(ctx, key)
}

func (b forbidden) Range(ctx context.Context, prefix string) ([]coord.Entry, coord.Revision, error) {
	if prefix == b.prefix {
		return nil, 0, errForbidden
	}
	return b.Local.Range(ctx, prefix)
}

func (b forbidden) Commit(ctx context.Context, all ...coord.Transaction) ([]bool, error) {
	for _, t := range all {
		for _, c := range t.Then {
			if strings.HasPrefix(c.Key, b.prefix) {
				return nil, errForbidden
			}
		}
	}
	return b.Local.Commit(ctx, all...)
}

// The problem that keeps an engine from following the configuration is logged once a minute.
func TestAnEngineLogsWhyItDoesNotFollow(t *testing.T) {
	for want, prefix := range map[string]string{
		"a revision of the configuration cannot be read, trying again":               "config/files/",
		"cannot publish the revision that this engine runs, retrying":                "config/shared/engine/",
		"the configuration of the fleet cannot be followed, keeping the present one": "config/shared/",
	} {
		synctest.Test(t, func(t *testing.T) {
			b := coordtest.NewLocal()
			push(t, b, "first")
			e := follow(t, forbidden{b, prefix}, revision.Ref{}, nil)
			time.Sleep(10 * time.Minute)
			e.end()
			if n := strings.Count(e.log.String(), want); n < 9 || n > 11 || !strings.Contains(e.log.String(), "permission denied") {
				t.Errorf("%d warnings in ten minutes, want %q:\n%s", n, want, e.log.String())
			}
		})
	}
}

// Only its engine runs a trial, the trial ends with the next revision, and its engine does not apply it again when it
// becomes current.
func TestOneEngineTriesARevision(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		b := coordtest.NewLocal()
		e := follow(t, b, push(t, b, "first").Ref(), nil)
		pushAs(t, b, revision.Revision{Engine: "b"}, "of another engine")
		e.wantUsed(t)
		pushAs(t, b, revision.Revision{Engine: "a"}, "tried")
		e.wantUsed(t, "3: tried")
		pushAs(t, b, revision.Revision{Engine: "b"}, "of another engine") // only one engine may try a revision at a time
		e.wantUsed(t, "1: first")
		pushAs(t, b, revision.Revision{Engine: "a"}, "tried")
		e.wantUsed(t, "5: tried")
		pushAs(t, b, revision.Revision{Restores: 1}, "first")
		e.wantUsed(t, "6: first")
		pushAs(t, b, revision.Revision{Engine: "a"}, "tried again")
		e.wantUsed(t, "7: tried again")
		push(t, b, "tried again")
		e.wantUsed(t)
		wantSays(t, b, "a runs 8")
	})
}

// torn is a Backend that loses the reply to each transaction.
type torn struct{ coord.Backend }

func (b torn) Commit(ctx context.Context, all ...coord.Transaction) ([]bool, error) {
	if _, err := b.Backend.Commit(ctx, all...); err != nil {
		return nil, err
	}
	return nil, errAway
}

func TestAPushWhoseReplyIsLostIsMadeAsAWhole(t *testing.T) {
	b := coordtest.NewLocal()
	seen := read(t, b)
	_, err := revision.Push(t.Context(), torn{b}, seen, revision.Revision{}, files("first"))
	if err == nil || !strings.HasPrefix(err.Error(), "revision 1 may be stored; push again: ") {
		t.Errorf("got %v", err)
	}
	if now := read(t, b); len(now.History) != 1 || now.Current().Err() != nil {
		t.Errorf("there are %+v", now.History)
	}
	if _, err := revision.Push(t.Context(), b, seen, revision.Revision{}, files("first")); err == nil || !strings.Contains(err.Error(), "revision 1 is current") {
		t.Errorf("it is pushed again by an old plan: %v", err)
	}
}
