package discover_test

import (
	"context"
	"errors"
	"maps"
	"slices"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	"github.com/sonde-probe/sonde/discover"
)

// answer is what a scripted source answers, some time after the answer before.
type answer struct {
	after time.Duration
	keys  string // separated by spaces
	err   error
}

// script is a Source that answers as it is written, and then waits.
type script struct {
	name    string
	answers []answer
}

func elements(keys string) discover.Elements {
	all := discover.Elements{}
	for key := range strings.FieldsSeq(keys) {
		all[key] = discover.Element{Address: key}
	}
	return all
}

// Run implements Source.
func (s *script) Run(ctx context.Context, found func(discover.Elements, error)) {
	for _, a := range s.answers {
		select {
		case <-time.After(a.after):
			found(elements(a.keys), a.err)
		case <-ctx.Done():
			return
		}
	}
	<-ctx.Done()
}

func keysOf(f *discover.Finder, name string) string {
	return strings.Join(slices.Sorted(maps.Keys(f.Found()[name])), " ")
}

var errBroken = errors.New("broken")

func TestAnAnswerThatIsBrokenOrEmptyRemovesNothing(t *testing.T) {
	for name, c := range map[string]struct {
		answers    []answer
		allowEmpty bool
		want, err  string
		changes    int
	}{
		"nothing has come":              {want: ""},
		"another answer":                {answers: []answer{{0, "a b", nil}, {1, "b c", nil}}, want: "b c", changes: 2},
		"the same answer":               {answers: []answer{{0, "a b", nil}, {1, "a b", nil}}, want: "a b", changes: 1},
		"a broken one":                  {answers: []answer{{0, "a b", nil}, {1, "", errBroken}}, want: "a b", err: "broken", changes: 1},
		"a part":                        {answers: []answer{{0, "a b", nil}, {1, "c", errBroken}}, want: "a b c", err: "broken", changes: 2},
		"a part, and then the whole":    {answers: []answer{{0, "a b", nil}, {1, "c", errBroken}, {1, "c", nil}}, want: "c", changes: 3},
		"an empty one":                  {answers: []answer{{0, "a b", nil}, {1, "", nil}}, want: "a b", err: "no elements", changes: 1},
		"an empty one that is allowed":  {answers: []answer{{0, "a b", nil}, {1, "", nil}}, allowEmpty: true, want: "", changes: 2},
		"a broken one where none was":   {answers: []answer{{0, "", errBroken}}, want: "", err: "broken"},
		"elements without an address":   {answers: []answer{{0, "a b", nil}, {1, "a", &discover.LeftOutError{N: 2, First: "x"}}}, want: "a", err: "2 elements are left out", changes: 2},
		"an empty one after an old one": {answers: []answer{{0, "", nil}}, want: ""},
	} {
		t.Run(name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				changes := 0
				f := discover.NewFinder(discover.FinderConfig{Changed: func() { changes++ }})
				f.Plan(map[string]discover.Spec{"s": {Source: &script{answers: c.answers}, AllowEmpty: c.allowEmpty}})()
				ctx, cancel := context.WithCancel(t.Context())
				ended := make(chan error, 1)
				go func() { ended <- f.Run(ctx) }()
				time.Sleep(time.Second)
				synctest.Wait()
				status := f.Statuses()[0]
				if got := keysOf(f, "s"); got != c.want || status.Elements != len(strings.Fields(c.want)) {
					t.Errorf("it knows %q, and %+v, want %q", got, status, c.want)
				}
				if (c.err == "") != (status.Error == "") || !strings.Contains(status.Error, c.err) || status.ErrorSince.IsZero() != (c.err == "") {
					t.Errorf("the status is %+v, want the error %q", status, c.err)
				}
				if changes != c.changes {
					t.Errorf("it has changed %d times, want %d", changes, c.changes)
				}
				cancel()
				if err := <-ended; err != nil {
					t.Error(err)
				}
			})
		})
	}
}

func TestASourceGoesOnUntilItsSettingsChange(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		f := discover.NewFinder(discover.FinderConfig{})
		f.Restore(map[string]discover.Elements{"s": elements("old"), "other": elements("x")})
		if got := keysOf(f, "s"); got != "old" {
			t.Errorf("before the first plan it knows %q", got)
		}
		go f.Run(t.Context())
		synctest.Wait()
		first := func() discover.Source { return &script{"first", []answer{{time.Second, "a", nil}}} }
		f.Plan(map[string]discover.Spec{"s": {Source: first()}})()
		if got := keysOf(f, "s"); got != "old" {
			t.Errorf("before the first answer it knows %q", got)
		}
		time.Sleep(1500 * time.Millisecond)
		f.Plan(map[string]discover.Spec{"s": {Source: first()}})() // an equal one: it is not asked again
		time.Sleep(3 * time.Second)
		answered := f.Statuses()[0].Answered
		if got := keysOf(f, "s"); got != "a" || time.Since(answered) < 3*time.Second {
			t.Errorf("it knows %q, answered %v ago", got, time.Since(answered))
		}
		f.Plan(map[string]discover.Spec{"s": {Source: &script{"second", []answer{{time.Second, "b", nil}}}}})()
		if got := keysOf(f, "s"); got != "a" {
			t.Errorf("with other settings it knows %q before the first answer", got)
		}
		time.Sleep(2 * time.Second)
		if got := keysOf(f, "s"); got != "b" {
			t.Errorf("then it knows %q", got)
		}
		f.Plan(nil)()
		if got := f.Found(); len(got["s"]) > 0 || len(f.Statuses()) > 0 {
			t.Errorf("without a source it knows %v", got)
		}
	})
}
