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
	"iter"
	"log/slog"
	"slices"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"testing/synctest"
	"time"

	"github.com/sonde-probe/sonde/fleet/coord"
	"github.com/sonde-probe/sonde/fleet/revision"
	"github.com/sonde-probe/sonde/tests/tier"
)

// files returns a bundle of one file.
func files(text string) *revision.Bundle {
	return &revision.Bundle{Sources: []string{"config.hcl"}, Files: map[string][]byte{"config.hcl": []byte(text)}}
}

func push(t *testing.T, b coord.Backend, base int64, text string) revision.Revision {
	t.Helper()
	r, err := revision.Push(t.Context(), b, revision.Request{Bundle: files(text), Base: base, IgnoreSilent: true})
	if err != nil {
		t.Fatal(err)
	}
	return r
}

func commit(t *testing.T, b coord.Backend, change coord.Change) {
	t.Helper()
	if _, err := b.Commit(t.Context(), coord.Transaction{Then: []coord.Change{change}}); err != nil {
		t.Fatal(err)
	}
}

// engine is what a follower was asked.
type engine struct {
	*revision.Follower
	end func()

	mu     sync.Mutex // guards all below
	wrong  error      // what Check and Use return
	events []string
	log    strings.Builder // guarded by its handler
}

// follow starts a follower that runs a revision already, and has an error with each other.
func follow(t *testing.T, b coord.Backend, running revision.Ref, wrong error) *engine {
	t.Helper()
	e := &engine{wrong: wrong}
	note := func(what string, r revision.Revision, files *revision.Bundle) error {
		e.mu.Lock()
		defer e.mu.Unlock()
		e.events = append(e.events, fmt.Sprintf("%s %d: %s", what, r.Number, files.Files["config.hcl"]))
		return e.wrong
	}
	f, err := revision.New(revision.Config{
		Name: "a", Backend: b, Running: running,
		Redact: func(text string) string { return strings.ReplaceAll(text, "hunter22", "(sensitive)") },
		Check:  func(_ context.Context, r revision.Revision, b *revision.Bundle) error { return note("check", r, b) },
		Use: func(_ context.Context, r revision.Revision, b *revision.Bundle, force bool) error {
			if force {
				return note("use", r, b)
			}
			return note("ask and use", r, b)
		},
		Logger: slog.New(slog.NewTextHandler(&e.log, nil)),
	})
	if err != nil {
		t.Fatal(err)
	}
	e.Follower = f
	ctx, stop := context.WithCancel(t.Context())
	var following sync.WaitGroup
	following.Go(func() { f.Run(ctx) })
	e.end = func() { stop(); following.Wait() }
	t.Cleanup(e.end)
	synctest.Wait()
	return e
}

// since returns what was asked since it was called before.
func (e *engine) since() (events []string) {
	synctest.Wait()
	e.mu.Lock()
	defer e.mu.Unlock()
	events, e.events = e.events, nil
	return events
}

func (e *engine) fail(err error) {
	e.mu.Lock()
	defer e.mu.Unlock()
	e.wrong = err
}

// says returns what the engine says of itself in the backend, with the age of that left out.
func says(t *testing.T, b coord.Backend) string {
	t.Helper()
	synctest.Wait()
	all, err := revision.Engines(t.Context(), b)
	if err != nil {
		t.Fatal(err)
	}
	var texts []string
	for _, e := range all {
		text := fmt.Sprintf("%s runs %d", e.Name, e.Running.Number)
		if e.Refused != nil {
			text += fmt.Sprintf(", not %d: %s", e.Refused.Number, e.Refused.Error)
		}
		texts = append(texts, text)
	}
	return strings.Join(texts, "; ")
}

func wantEvents(t *testing.T, e *engine, want ...string) {
	t.Helper()
	if got := e.since(); !slices.Equal(got, want) {
		t.Errorf("asked %q, want %q", got, want)
	}
}

func wantSays(t *testing.T, b coord.Backend, want string) {
	t.Helper()
	if got := says(t, b); got != want {
		t.Errorf("it says %q, want %q", got, want)
	}
}

func TestBundlesAreChecked(t *testing.T) {
	large := make([]byte, revision.MaxContent/2+1)
	many := files("x")
	for i := range revision.MaxFiles {
		many.Files[fmt.Sprint(i)] = nil
	}
	for want, bundle := range map[string]*revision.Bundle{
		"it has no configuration file":                    {},
		`configuration file "a.hcl" is missing`:           {Sources: []string{"a.hcl"}},
		`it has configuration file "a.hcl" twice`:         {Sources: []string{"a.hcl", "a.hcl"}, Files: map[string][]byte{"a.hcl": nil}},
		`file name "../a.hcl" must be relative`:           {Sources: []string{"../a.hcl"}, Files: map[string][]byte{"../a.hcl": nil}},
		`file name "/etc/passwd" must be relative`:        {Sources: []string{"/etc/passwd"}, Files: map[string][]byte{"/etc/passwd": nil}},
		`file name "a\\b" must be relative`:               {Sources: []string{`a\b`}, Files: map[string][]byte{`a\b`: nil}},
		"it has 4097 files, at most 4096 are allowed":     many,
		"its files have 67108866 bytes together, at most": {Sources: []string{"a"}, Files: map[string][]byte{"a": large, "b": large}},
	} {
		b := coord.NewLocal()
		_, err := revision.Push(t.Context(), b, revision.Request{Bundle: bundle})
		if err == nil || !strings.Contains(err.Error(), "the configuration cannot be pushed: "+want) {
			t.Errorf("%v, want %q", err, want)
		}
		if left, _, _ := b.Range(t.Context(), ""); len(left) > 0 {
			t.Errorf("it left %v", left)
		}
	}
}

// Who can write to a store can write other bundles than Push does.
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
		`{"sources": ["a.hcl"], "files": {"a.hcl": ""}}` + strings.Repeat(" ", 2*revision.MaxContent): "wrong digest", // it is not read to its end
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

func TestRequestsAreChecked(t *testing.T) {
	b := coord.NewLocal()
	push(t, b, 0, "first")
	for want, r := range map[string]revision.Request{
		"a push needs either files, or the number":                                               {},
		"either files, or the number of a":                                                       {Bundle: files("x"), Restore: 1},
		"there is no revision 7: the latest 20":                                                  {Base: 1, Restore: 7},
		"revision 1 is current, and the push was planned with revision 0: someone pushed it at ": {Bundle: files("x")},
		"revision 1 is current, and the push was planned with revision 3: someone":               {Bundle: files("x"), Base: 3},
	} {
		if _, err := revision.Push(t.Context(), b, r); err == nil || !strings.Contains(err.Error(), want) {
			t.Errorf("%+v: %v, want %q", r, err, want)
		}
	}
	if _, err := revision.Push(t.Context(), coord.NewLocal(), revision.Request{Bundle: files("x"), Base: 3}); err == nil || !strings.Contains(err.Error(), "there is no revision, and the push was planned with revision 3") {
		t.Errorf("a store that was emptied: %v", err)
	}
}

func TestHistoryIsBounded(t *testing.T) {
	b := coord.NewLocal()
	for i := range revision.MaxHistory + 5 {
		push(t, b, int64(i), fmt.Sprint("text ", i+1))
	}
	all, err := revision.History(t.Context(), b)
	if err != nil || len(all) != revision.MaxHistory || all[0].Number != 6 {
		t.Fatalf("%d revisions from %d, %v", len(all), all[0].Number, err)
	}
	if parts, _, err := b.Range(t.Context(), "config/part/"); err != nil || len(parts) != revision.MaxHistory {
		t.Errorf("%d parts, %v", len(parts), err)
	}
	if _, err := revision.Push(t.Context(), b, revision.Request{Restore: 5, Base: 25}); err == nil {
		t.Error("a revision is restored that is no longer there")
	}
	back, err := revision.Push(t.Context(), b, revision.Request{Restore: 6, Base: 25, IgnoreSilent: true})
	if err != nil {
		t.Fatal(err)
	}
	for i := range revision.MaxHistory - 1 { // revision 6 itself is forgotten, and its files are not
		push(t, b, back.Number+int64(i), "more")
	}
	if loaded, err := revision.Load(t.Context(), b, back); err != nil || string(loaded.Files["config.hcl"]) != "text 6" {
		t.Errorf("restored %v, %v", loaded, err)
	}
}

// An engine goes on with what it has while the store has nothing that it can use.
func TestAnEngineKeepsWhatItRuns(t *testing.T) {
	broken := map[string]func(t *testing.T, b coord.Backend, r revision.Revision){
		"part 1 is missing": func(t *testing.T, b coord.Backend, r revision.Revision) {
			commit(t, b, coord.Change{Key: "config/part/" + r.Bundle.ID + "/0000", Delete: true})
		},
		"part 1 is missing, or has another size": func(t *testing.T, b coord.Backend, r revision.Revision) {
			commit(t, b, coord.Change{Key: "config/part/" + r.Bundle.ID + "/0000", Value: make([]byte, r.Bundle.Size+1)})
		},
		"gzip: invalid header": func(t *testing.T, b coord.Backend, r revision.Revision) {
			commit(t, b, coord.Change{Key: "config/part/" + r.Bundle.ID + "/0000", Value: make([]byte, r.Bundle.Size)})
		},
		"wrong digest": func(t *testing.T, b coord.Backend, r revision.Revision) {
			r.Bundle.Digest = strings.Repeat("0", 64)
			replace(t, b, r)
		},
		"it has 16777217 bytes, at most 16777216 are allowed": func(t *testing.T, b coord.Backend, r revision.Revision) {
			r.Bundle.Size = revision.MaxSize + 1
			replace(t, b, r)
		},
		"it says that it is revision 9": func(t *testing.T, b coord.Backend, r revision.Revision) {
			value, _ := json.Marshal(revision.Revision{Format: 1, Number: 9})
			commit(t, b, coord.Change{Key: "config/shared/revision/0000000002", Value: value})
		},
		"invalid character": func(t *testing.T, b coord.Backend, r revision.Revision) {
			commit(t, b, coord.Change{Key: "config/shared/revision/0000000002", Value: []byte("?")})
		},
		"the revision was written by a later version of this program: update this one": func(t *testing.T, b coord.Backend, r revision.Revision) {
			r.Format = 2
			replace(t, b, r)
		},
	}
	for want, damage := range broken {
		synctest.Test(t, func(t *testing.T) {
			b := coord.NewLocal()
			first := push(t, b, 0, "first")
			second := push(t, b, 1, "second")
			damage(t, b, second)
			e := follow(t, b, first.Ref(), nil)
			wantEvents(t, e)
			if got := says(t, b); !strings.HasPrefix(got, "a runs 1, not 2: revision 2: ") || !strings.Contains(got, want) {
				t.Errorf("it says %q, want %q", got, want)
			}
			third, err := revision.Push(t.Context(), b, revision.Request{Restore: 1, Base: 2})
			if err != nil {
				t.Fatal(err)
			}
			wantEvents(t, e, "check 3: first", "use 3: first")
			wantSays(t, b, "a runs 3")
			if third.Ref() == first.Ref() {
				t.Error("a rollback is the same revision")
			}
		})
	}
}

func replace(t *testing.T, b coord.Backend, r revision.Revision) {
	t.Helper()
	value, err := json.Marshal(r)
	if err != nil {
		t.Fatal(err)
	}
	commit(t, b, coord.Change{Key: fmt.Sprintf("config/shared/revision/%010d", r.Number), Value: value})
}

func TestWhatAnEngineSaysIsRedactedAndBounded(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		b := coord.NewLocal()
		first := push(t, b, 0, "first")
		push(t, b, 1, "second")
		wrong := errors.New("no plugin with hunter22\x1b" + strings.Repeat("x", 2*revision.MaxError))
		e := follow(t, b, first.Ref(), wrong)
		wantEvents(t, e, "ask and use 2: second")
		const want = "no plugin with (sensitive)\uFFFDxx"
		if got := says(t, b); !strings.HasPrefix(got, "a runs 1, not 2: "+want) || len(got) > revision.MaxError+100 {
			t.Errorf("it says %q", got)
		}
		_, err := revision.Push(t.Context(), b, revision.Request{Bundle: files("third"), Base: 2})
		if err == nil || !strings.Contains(err.Error(), want) || len(err.Error()) > revision.MaxError+100 {
			t.Errorf("pushed: %v", err)
		}
		wantEvents(t, e, "check 3: third")
	})
}

func TestACheckChangesNothing(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		b := coord.NewLocal()
		running := push(t, b, 0, "one")
		e := follow(t, b, running.Ref(), nil)
		e.since()
		before, _, err := b.Range(t.Context(), "")
		if err != nil {
			t.Fatal(err)
		}
		ask := revision.Request{Bundle: files("two"), Base: 1, CheckOnly: true}
		asked, err := revision.Push(t.Context(), b, ask)
		if events := e.since(); err != nil || asked.Accepted != 1 || !slices.Equal(events, []string{"check 2: two"}) {
			t.Errorf("%v: accepted by %d engines, which were asked to %v", err, asked.Accepted, events)
		}
		e.fail(errors.New("no plugin"))
		var refused *revision.RefusedError
		if _, err := revision.Push(t.Context(), b, ask); !errors.As(err, &refused) || len(refused.Refused) != 1 {
			t.Errorf("got %v", err)
		}
		after, _, err := b.Range(t.Context(), "")
		if err != nil {
			t.Fatal(err)
		}
		keys := func(entries []coord.Entry) (all []string) {
			for _, entry := range entries {
				all = append(all, entry.Key)
			}
			return all
		}
		if !slices.Equal(keys(before), keys(after)) {
			t.Errorf("before there were %q, and now %q", keys(before), keys(after))
		}
	})
}

func TestARefusedRevisionIsTriedAgainWhenAsked(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		b := coord.NewLocal()
		e := follow(t, b, revision.Ref{}, nil)
		wantSays(t, b, "a runs 0")
		push(t, b, 0, "first")
		wantEvents(t, e, "check 1: first", "use 1: first")
		e.fail(errors.New("no plugin"))
		second := unseen(t, b)
		wantEvents(t, e, "ask and use 2: second")
		wantSays(t, b, "a runs 1, not 2: no plugin")
		time.Sleep(time.Hour)
		wantEvents(t, e)
		e.Again(false)
		wantEvents(t, e, "ask and use 2: second")
		e.fail(nil)
		e.Again(true)
		wantEvents(t, e, "use 2: second")
		e.Again(true) // it uses that already
		wantEvents(t, e)
		wantSays(t, b, "a runs 2")
		if told, current := e.Status(); told.Running != second.Ref() || current.Number != 2 {
			t.Errorf("its status is %+v, %+v", told, current)
		}

		push(t, b, 2, "third")
		wantEvents(t, e, "check 3: third", "use 3: third")
		e.end()
		forced, err := revision.Push(t.Context(), b, revision.Request{Bundle: files("fourth"), Base: 3, IgnoreSilent: true, Force: true})
		if err != nil {
			t.Fatal(err)
		}
		wantEvents(t, follow(t, b, second.Ref(), nil), "use 4: fourth")
		if !forced.Force {
			t.Error("the revision does not say that it was forced")
		}
	})
}

// unseen makes a second revision that the engine is not asked about, as if it had been pushed before the
// engine joined.
func unseen(t *testing.T, b coord.Backend) revision.Revision {
	t.Helper()
	elsewhere := coord.NewLocal()
	push(t, elsewhere, 0, "first")
	r := push(t, elsewhere, 1, "second")
	entries, _, err := elsewhere.Range(t.Context(), "config/part/"+r.Bundle.ID)
	if err != nil {
		t.Fatal(err)
	}
	for _, e := range entries {
		commit(t, b, coord.Change{Key: e.Key, Value: e.Value})
	}
	replace(t, b, r)
	return r
}

// away is a Backend that can be away.
type away struct {
	*coord.Local
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
		b := &away{Local: coord.NewLocal()}
		first := push(t, b, 0, "first")
		b.isAway.Store(true)
		e := follow(t, b, first.Ref(), nil) // it was started again with its copy of the first
		time.Sleep(time.Minute)
		wantEvents(t, e)
		b.isAway.Store(false)
		time.Sleep(coord.DefaultTTL)
		wantEvents(t, e)
		wantSays(t, b.Local, "a runs 1")

		b.isAway.Store(true)
		time.Sleep(time.Minute)
		wantSays(t, b.Local, "") // its lease has ended
		push(t, b.Local, 1, "second")
		time.Sleep(time.Minute)
		if told, _ := e.Status(); told.Running != first.Ref() {
			t.Errorf("it runs %+v", told.Running)
		}
		b.isAway.Store(false)
		time.Sleep(coord.DefaultTTL)
		wantEvents(t, e, "ask and use 2: second")
		wantSays(t, b.Local, "a runs 2")

		entries, _, err := b.Range(t.Context(), "config/shared/")
		if err != nil {
			t.Fatal(err)
		}
		for _, entry := range entries { // the store is emptied
			commit(t, b, coord.Change{Key: entry.Key, Delete: true})
		}
		wantEvents(t, e)
		wantSays(t, b, "a runs 2")
	})
}

// What an operator has asked for holds until the revision could be read, and for no later revision.
func TestARefusedRevisionIsTriedAgainOnceTheStoreAnswers(t *testing.T) {
	for _, hasLater := range []bool{false, true} {
		synctest.Test(t, func(t *testing.T) {
			b := &away{Local: coord.NewLocal()}
			e := follow(t, b, push(t, b, 0, "first").Ref(), errors.New("no plugin"))
			unseen(t, b.Local)
			wantEvents(t, e, "ask and use 2: second")
			e.fail(nil)
			b.isAway.Store(true)
			e.Again(true)
			time.Sleep(time.Second)
			e.Again(false) // it takes nothing from what was asked for before
			time.Sleep(time.Minute)
			wantEvents(t, e)
			want := "use 2: second"
			if hasLater {
				push(t, b.Local, 2, "third")
				want = "ask and use 3: third"
			}
			b.isAway.Store(false)
			time.Sleep(coord.DefaultTTL)
			wantEvents(t, e, want)
		})
	}
}

// lossy is a Backend that loses the replies to transactions that make a revision current.
type lossy struct {
	*coord.Local
	isBefore bool // the transaction is lost, too
	lost     int
}

func (b *lossy) Commit(ctx context.Context, all ...coord.Transaction) ([]bool, error) {
	if b.lost > 3 || !strings.HasPrefix(all[0].Then[0].Key, "config/shared/revision/") || all[0].Then[0].Delete {
		return b.Local.Commit(ctx, all...)
	}
	b.lost++
	if !b.isBefore {
		_, _ = b.Local.Commit(ctx, all...)
	}
	return nil, context.DeadlineExceeded
}

func TestARevisionWhoseReplyWasLostIsPushedOnce(t *testing.T) {
	for _, isBefore := range []bool{true, false} {
		synctest.Test(t, func(t *testing.T) {
			b := &lossy{Local: coord.NewLocal(), isBefore: isBefore}
			r := push(t, b, 0, "first")
			all, err := revision.History(t.Context(), b)
			if err != nil || len(all) != 1 || all[0].ID != r.ID || b.lost == 0 {
				t.Errorf("there are %+v, %v, and %d replies were lost", all, err, b.lost)
			}
			if _, err := revision.Load(t.Context(), b, r); err != nil {
				t.Error(err)
			}
		})
	}
}

// interrupted is a Backend in which something else comes before the transaction that first puts a key.
type interrupted struct {
	*coord.Local
	key   string
	first func()
}

func (b *interrupted) Commit(ctx context.Context, all ...coord.Transaction) ([]bool, error) {
	if change := all[0].Then[0]; change.Key == b.key && !change.Delete && b.first != nil {
		first := b.first
		b.first = nil
		first()
	}
	return b.Local.Commit(ctx, all...)
}

const proposalKey, firstKey = "config/shared/proposal", "config/shared/revision/0000000001"

func TestARevisionIsNotMadeWithoutItsProposal(t *testing.T) {
	for want, first := range map[string]func(t *testing.T, b coord.Backend){
		"revision 1 is not made current: what was proposed is gone": func(t *testing.T, b coord.Backend) {
			commit(t, b, coord.Change{Key: proposalKey, Delete: true})
		},
		"revision 1 is current, and the push was planned with revision 0: intruder pushed it": func(t *testing.T, b coord.Backend) {
			replace(t, b, revision.Revision{Format: 1, ID: "other", Number: 1, Author: "intruder"})
		},
	} {
		b := &interrupted{Local: coord.NewLocal(), key: firstKey}
		b.first = func() { first(t, b.Local) }
		r, err := revision.Push(t.Context(), b, revision.Request{Bundle: files("first"), Author: "ops"})
		if err == nil || !strings.HasPrefix(err.Error(), want) {
			t.Errorf("pushed %+v, %v, want %q", r, err, want)
		}
		if all, err := revision.History(t.Context(), b); err != nil || len(all) > 0 && all[0].Author != "intruder" {
			t.Errorf("there are %+v, %v", all, err)
		}
	}
}

func TestEnginesAreNotAskedAboutAPushThatIsTooLate(t *testing.T) {
	b := &interrupted{Local: coord.NewLocal(), key: proposalKey}
	b.first = func() { push(t, b, 0, "first") }
	asked := func(revision.Revision, []revision.Engine) { t.Error("their answers are awaited") }
	_, err := revision.Push(t.Context(), b, revision.Request{Bundle: files("late"), Report: asked})
	if conflict := (*revision.ConflictError)(nil); !errors.As(err, &conflict) || conflict.Current.Number != 1 {
		t.Errorf("pushed: %v", err)
	}
}

// deleter is a Backend in which something else comes before the first transaction that deletes a bundle.
type deleter struct {
	*coord.Local
	first func()
}

func (b *deleter) Commit(ctx context.Context, all ...coord.Transaction) ([]bool, error) {
	if change := all[0].Then[0]; strings.HasPrefix(change.Key, "config/bundle/") && change.Delete && all[0].If[0].Created > 0 {
		b.first()
	}
	return b.Local.Commit(ctx, all...)
}

// A push that is refused deletes what nothing refers to, and not what another is proposing, even if that
// is made current meanwhile.
func TestFilesThatAreProposedAreNotDeleted(t *testing.T) {
	b := coord.NewLocal()
	proposed, finish, made := make(chan struct{}), make(chan struct{}), make(chan revision.Revision, 1)
	report := func(revision.Revision, []revision.Engine) { close(proposed); <-finish }
	var pushing sync.WaitGroup
	pushing.Go(func() {
		r, err := revision.Push(t.Context(), b, revision.Request{Bundle: files("first"), Report: report})
		if err != nil {
			t.Error(err)
		}
		made <- r
	})
	<-proposed
	end := sync.OnceFunc(func() { close(finish); pushing.Wait() })
	if r, err := revision.Push(t.Context(), &deleter{b, end}, revision.Request{Bundle: files("other")}); err == nil {
		t.Errorf("pushed %+v beside another", r)
	}
	end()
	if loaded, err := revision.Load(t.Context(), b, <-made); err != nil || string(loaded.Files["config.hcl"]) != "first" {
		t.Errorf("loaded %v, %v", loaded, err)
	}
	if bundles, _, err := b.Range(t.Context(), "config/bundle/"); err != nil || len(bundles) != 1 {
		t.Errorf("%d bundles, %v", len(bundles), err)
	}
}

func TestConfigsAreChecked(t *testing.T) {
	check := func(context.Context, revision.Revision, *revision.Bundle) error { return nil }
	use := func(context.Context, revision.Revision, *revision.Bundle, bool) error { return nil }
	for want, c := range map[string]revision.Config{
		`name is ""; it must have`:       {},
		`name is "a/b"; it must have`:    {Name: "a/b"},
		"a follower needs a backend":     {Name: "a"},
		"a backend, and functions that":  {Name: "a", Backend: coord.NewLocal(), Use: use},
		"ttl is 1s; it must be at least": {Name: "a", Backend: coord.NewLocal(), Use: use, Check: check, TTL: time.Second},
	} {
		if _, err := revision.New(c); err == nil || !strings.Contains(err.Error(), want) {
			t.Errorf("%+v: %v, want %q", c, err, want)
		}
	}
}

// A push waits for an engine, however the entry came to be lost that says so.
func TestAnEngineSaysAgainWhatOthersHaveDeleted(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		b := coord.NewLocal()
		first := push(t, b, 0, "first")
		follow(t, b, first.Ref(), nil)
		wantSays(t, b, "a runs 1")
		commit(t, b, coord.Change{Key: "config/engine/a", Delete: true})
		time.Sleep(2 * coord.DefaultTTL)
		wantSays(t, b, "a runs 1")
	})
}

// Two processes have one name for a moment: an engine that is started again before the lease of the one before has
// ended. The second says nothing in the name of the first, and speaks for itself as soon as that has ended.
func TestAnEngineWaitsForTheEndOfItsNamesake(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		b := coord.NewLocal()
		first := push(t, b, 0, "first")
		old := follow(t, b, first.Ref(), nil)
		e := follow(t, b, revision.Ref{}, errors.New("cannot be used"))
		wantEvents(t, e, "ask and use 1: first")
		time.Sleep(3 * coord.DefaultTTL)
		wantSays(t, b, "a runs 1")
		old.end()
		time.Sleep(coord.DefaultTTL)
		wantSays(t, b, "a runs 0, not 1: cannot be used")
	})
}

// unwatchable is a Backend whose watches end at once.
type unwatchable struct{ *coord.Local }

func (unwatchable) Watch(context.Context, string, coord.Revision) iter.Seq2[[]coord.Event, error] {
	return func(yield func([]coord.Event, error) bool) { yield(nil, errAway) }
}

func TestABackendThatCannotBeWatchedIsLoggedOnceAMinute(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		log := logOf(t, unwatchable{coord.NewLocal()})
		if n := strings.Count(log, "level=WARN"); n < 9 || n > 11 {
			t.Errorf("%d warnings in ten minutes:\n%s", n, log)
		}
	})
}

// An engine that has refused the current revision is outdated once another one uses it.
func TestAnEngineIsOutdatedWhileAnotherUsesTheCurrentRevision(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		b := coord.NewLocal()
		var said []bool
		f, err := revision.New(revision.Config{
			Name: "a", Backend: b, Outdated: func(is bool) { said = append(said, is) },
			Check: func(context.Context, revision.Revision, *revision.Bundle) error { return nil },
			Use: func(_ context.Context, r revision.Revision, _ *revision.Bundle, _ bool) error {
				if r.Number == 2 {
					return errors.New("cannot be used")
				}
				return nil
			},
		})
		if err != nil {
			t.Fatal(err)
		}
		ctx, stop := context.WithCancel(t.Context())
		var following sync.WaitGroup
		following.Go(func() { f.Run(ctx) })
		defer following.Wait()
		defer stop()
		want := func(when string, want ...bool) {
			t.Helper()
			time.Sleep(2 * coord.DefaultTTL)
			synctest.Wait()
			if !slices.Equal(said, want) {
				t.Errorf("%s: it was said %v, want %v", when, said, want)
			}
		}
		want("no revision", false)
		push(t, b, 0, "first")
		want("it uses the first", false)
		second := push(t, b, 1, "second")
		want("it refuses the second, which no other uses", false)
		value, _ := json.Marshal(revision.Engine{Format: 1, Running: second.Ref()})
		commit(t, b, coord.Change{Key: "config/engine/b", Value: value})
		want("another uses the second", false, true)
		push(t, b, 2, "third")
		want("it uses the third", false, true, false)
	})
}

// One that is of an earlier version of this program cannot read what a later one has pushed.
func TestAnEngineThatIsTooOldForTheCurrentRevisionIsOutdated(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		b := coord.NewLocal()
		first := push(t, b, 0, "first")
		second := push(t, b, 1, "second")
		ref := second.Ref()
		second.Format = 2
		replace(t, b, second)
		said := make(chan bool, 10)
		f, err := revision.New(revision.Config{
			Name: "a", Backend: b, Running: first.Ref(), Outdated: func(is bool) { said <- is },
			Check: func(context.Context, revision.Revision, *revision.Bundle) error { return nil },
			Use:   func(context.Context, revision.Revision, *revision.Bundle, bool) error { return nil },
		})
		if err != nil {
			t.Fatal(err)
		}
		ctx, stop := context.WithCancel(t.Context())
		var following sync.WaitGroup
		following.Go(func() { f.Run(ctx) })
		defer following.Wait()
		defer stop()
		want := func(when string, want bool) {
			t.Helper()
			time.Sleep(2 * coord.DefaultTTL)
			synctest.Wait()
			select {
			case is := <-said:
				if is != want {
					t.Errorf("%s: it was said that it is outdated: %v", when, is)
				}
			default:
				t.Errorf("%s: nothing was said", when)
			}
		}
		want("no other engine uses it", false)
		value, _ := json.Marshal(revision.Engine{Format: 1, Running: ref})
		commit(t, b, coord.Change{Key: "config/engine/b", Value: value})
		want("another engine uses it", true)
	})
}

// forbidden is a Backend that does not let the engine read or write keys with a prefix.
type forbidden struct {
	*coord.Local
	prefix string
}

var errForbidden = errors.New("permission denied")

func (b forbidden) Get(ctx context.Context, key string) (coord.Entry, error) {
	if strings.HasPrefix(key, b.prefix) {
		return coord.Entry{}, errForbidden
	}
	return b.Local.Get(ctx, key)
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

// What keeps an engine from following the configuration for longer is in its log, once a minute.
func TestAnEngineLogsWhyItDoesNotFollow(t *testing.T) {
	for want, prefix := range map[string]string{
		"the current configuration revision cannot be read, trying again": "config/part/",
		"the store does not have the status of this engine, trying again": "config/engine/",
	} {
		synctest.Test(t, func(t *testing.T) {
			b := coord.NewLocal()
			push(t, b, 0, "first")
			log := logOf(t, forbidden{b, prefix})
			if n := strings.Count(log, want); n < 9 || n > 11 || !strings.Contains(log, "permission denied") {
				t.Errorf("%d warnings in ten minutes, want %q:\n%s", n, want, log)
			}
		})
	}
	synctest.Test(t, func(t *testing.T) {
		b := coord.NewLocal()
		push(t, b, 0, "first")
		follow(t, b, revision.Ref{}, nil)
		time.Sleep(time.Second)
		if log := logOf(t, b); strings.Count(log, "another engine has this name") < 9 {
			t.Errorf("a namesake that does not end:\n%s", log)
		}
	})
}

// logOf returns what a follower logs in ten minutes.
func logOf(t *testing.T, b coord.Backend) string {
	t.Helper()
	var log strings.Builder
	f, err := revision.New(revision.Config{
		Name: "a", Backend: b, Logger: slog.New(slog.NewTextHandler(&log, nil)),
		Check: func(context.Context, revision.Revision, *revision.Bundle) error { return nil },
		Use:   func(context.Context, revision.Revision, *revision.Bundle, bool) error { return nil },
	})
	if err != nil {
		t.Fatal(err)
	}
	ctx, stop := context.WithTimeout(t.Context(), 10*time.Minute)
	defer stop()
	f.Run(ctx)
	return log.String()
}
