package push

import (
	"context"
	"encoding/json"
	"errors"
	"io"
	"slices"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	"github.com/spf13/cobra"

	"github.com/sonde-probe/sonde/cmd/engine/internal/access"
	"github.com/sonde-probe/sonde/fleet/coord"
	"github.com/sonde-probe/sonde/fleet/revision"
	"github.com/sonde-probe/sonde/tests/testsync"
)

func TestARollbackHasTheRevisionBeforeTheCurrent(t *testing.T) {
	all := []revision.Revision{{Number: 4}, {Number: 5}, {Number: 7}}
	for _, c := range []struct {
		all    []revision.Revision
		number int64
		want   int64
		err    string
	}{
		{all, 0, 5, ""},
		{all, 4, 4, ""},
		{all, 7, 0, "revision 7 is the current one"},
		{all, 6, 0, "there is no revision 6: those from 4 to 7 are kept"},
		{all[:1], 0, 0, "there is no earlier revision"},
		{nil, 3, 0, "there is no earlier revision"},
	} {
		earlier, current, err := pick(c.all, c.number)
		switch {
		case c.err != "":
			if err == nil || err.Error() != c.err {
				t.Errorf("%d of %v: %v, want %q", c.number, c.all, err, c.err)
			}
		case err != nil || earlier.Number != c.want || current.Number != 7:
			t.Errorf("%d of %v: %d, %d, %v", c.number, c.all, earlier.Number, current.Number, err)
		}
	}
}

func TestAPushNeedsAnAnswer(t *testing.T) {
	for answer, want := range map[string]string{
		"y\n": "", "Yes\n": "", "y": "", "n\n": "nothing is pushed", "\n": "nothing is pushed", "perhaps\n": "nothing is pushed",
		"": "nothing is pushed: no answer was given, use --yes in scripts",
	} {
		var out strings.Builder
		c := &cobra.Command{}
		c.SetContext(t.Context())
		c.SetIn(strings.NewReader(answer))
		c.SetOut(&out)
		err := confirm(c, 3)
		if err == nil && want != "" || err != nil && err.Error() != want || !strings.Contains(out.String(), "Push this as revision 3? [y/N]") {
			t.Errorf("%q: %v, want %q\n%s", answer, err, want, out.String())
		}
	}
}

func TestRefusalsNameEnginesAndReasons(t *testing.T) {
	refusing := func(name, reason string) revision.Engine {
		return revision.Engine{Name: name, Answer: &revision.Answer{Error: reason}}
	}
	many := slices.Repeat([]revision.Engine{refusing("c", "no")}, maxShown+2)
	for _, c := range []struct {
		refused     *revision.RefusedError
		text, error string
	}{
		{
			&revision.RefusedError{Engines: 3, Refused: []revision.Engine{refusing("a", "two\n\x1b[2Jlines\n"), refusing("b\x1b[2J", "no")}},
			"a refuses it:\n  two\n  \ufffd[2Jlines\nb", "nothing is changed: 2 of 3 engines have refused it",
		},
		{&revision.RefusedError{Engines: 9, Refused: many}, "… and 2 more engines\n", "nothing is changed: 7 of 9 engines have refused it"},
		{&revision.RefusedError{Engines: 3, Silent: []string{"a\x1b"}}, "", "nothing is changed: 1 of 3 engines have not answered: a\ufffd; push again with a longer --timeout, or with --ignore-silent"},
		{&revision.RefusedError{}, "", "nothing is changed: no engine follows the configuration, so that none has checked it; start one, or push with --ignore-silent"},
	} {
		var out strings.Builder
		err := showRefusals(&out, c.refused)
		if err == nil || err.Error() != c.error || !strings.Contains(out.String(), c.text) || strings.Contains(out.String(), "\x1b") {
			t.Errorf("got %v\n%q\nwant %s\n%q", err, out.String(), c.error, c.text)
		}
	}
}

func TestADryRunSaysWhichEnginesHaveAnswered(t *testing.T) {
	for want, r := range map[string]revision.Revision{
		"no engine follows the configuration, so that none has checked it; nothing is pushed": {},
		"1 engine accepts it; nothing is pushed":                                              {Accepted: 1},
		"3 engines accept it; 1 engine has not answered: a\ufffd; nothing is pushed":          {Accepted: 3, Silent: []string{"a\x1b"}},
		"no engine has checked it; 2 engines have not answered: a, b; nothing is pushed":      {Silent: []string{"a", "b"}},
	} {
		if got := dryRunText(r); got != want {
			t.Errorf("got %s\nwant %s", got, want)
		}
	}
}

func TestThePushEndsWhenEachEngineUsesOrRefuses(t *testing.T) {
	ref := revision.Ref{Number: 3, Digest: "3"}
	using := revision.Engine{Name: "a", Running: ref}
	late := revision.Engine{Name: "b", Running: revision.Ref{Number: 2, Digest: "2"}}
	sameNumber := revision.Engine{Name: "c", Running: revision.Ref{Number: 3, Digest: "other"}}
	refusing := revision.Engine{Name: "d", Refused: &revision.Refusal{Ref: ref, Error: "no memory"}}
	if u := usesOf([]revision.Engine{using, late, sameNumber, refusing}, ref); u.using != 1 || !slices.Equal(u.waiting, []string{"b", "c"}) || len(u.refused) != 1 {
		t.Errorf("got %+v", u)
	}
	for want, c := range map[string]struct {
		engines []revision.Engine
		number  int64
		isError bool
	}{
		"revision 3 is current, in use by 1 engine\n":                                   {[]revision.Engine{using}, 3, false},
		"revision 1 is current; no engine follows the configuration yet\n":              {nil, 1, false},
		"revision 3 is current; no engine uses it: all have ended, or left the cluster": {nil, 3, true},
		"d refuses it:\n  no memory\nrevision 3 is current; 1 of 2 engines use it":      {[]revision.Engine{using, refusing}, 3, true},
	} {
		var out strings.Builder
		err := usesOf(c.engines, ref).write(&out, &out, revision.Revision{Number: c.number}, false)
		if err != nil {
			out.WriteString(err.Error())
		}
		if (err != nil) != c.isError || out.String() != want {
			t.Errorf("got %v\n%s\nwant %s", err, out.String(), want)
		}
	}
	if err := usesOf(nil, ref).write(io.Discard, io.Discard, revision.Revision{Number: 3}, true); err != nil {
		t.Errorf("without engines, with --ignore-silent: %v", err)
	}
}

func TestTheQuestionEndsWithAnInterrupt(t *testing.T) {
	in, writer := io.Pipe() // a terminal at which no one types
	defer writer.Close()
	ctx, interrupt := context.WithCancel(t.Context())
	interrupt()
	c := &cobra.Command{}
	c.SetContext(ctx)
	c.SetIn(in)
	c.SetOut(io.Discard)
	answered := make(chan error)
	go func() { answered <- confirm(c, 3) }()
	if err := testsync.Receive(t, "the end of the question", answered); err == nil || err.Error() != "nothing is pushed: interrupted" {
		t.Errorf("got %v", err)
	}
}

// failing is a store that answers once.
type failing struct {
	coord.Backend
	entries []coord.Entry
	calls   int
}

func (f *failing) Range(context.Context, string) ([]coord.Entry, coord.Revision, error) {
	if f.calls++; f.calls > 1 {
		return nil, 0, errors.New("the store is away")
	}
	return f.entries, 1, nil
}

func (f *failing) Close() error { return nil }

func TestThePushNamesTheEnginesThatWereWaitedForLast(t *testing.T) {
	late, err := json.Marshal(revision.Engine{Format: 1, Running: revision.Ref{Number: 2, Digest: "2"}})
	if err != nil {
		t.Fatal(err)
	}
	for want, entries := range map[string][]coord.Entry{
		"it is not known yet whether these engines use it: b\ufffd; sonde":                                            {{Key: "config/engine/b\x1b", Value: late}},
		"it is not known which engines use it: read which engines follow the configuration: the store is away; sonde": nil,
	} {
		synctest.Test(t, func(t *testing.T) {
			store := &failing{Backend: coord.NewLocal(), entries: entries}
			if entries == nil {
				store.calls = 1
			}
			to := &fleet{&access.Store{Store: store}}
			err := to.awaitUse(t.Context(), io.Discard, io.Discard, revision.Revision{Number: 3}, &flags{timeout: time.Minute})
			if err == nil || !strings.Contains(err.Error(), want) {
				t.Errorf("got %v, want %s", err, want)
			}
		})
	}
}

func TestTheHistoryHasARowForEachRevision(t *testing.T) {
	var out strings.Builder
	err := writeRevisions(&out, []revision.Revision{
		{Number: 1, Author: "me@here", Accepted: 2, Message: "first"}, {Number: 12, Author: "me@here", Accepted: 1, Restores: 1},
		{Number: 13, Author: "me@here", Restores: 1, Message: "again"},
	})
	if err != nil {
		t.Fatal(err)
	}
	lines := strings.Split(out.String(), "\n")
	for i, want := range []string{"NOTE", "first", "has the files of 1", "has the files of 1: again"} {
		if !strings.HasSuffix(lines[i], "  "+want) || strings.Index(lines[i], want) != strings.Index(lines[0], "NOTE") {
			t.Errorf("line %d is %q, which ends without %q below NOTE", i, lines[i], want)
		}
	}
}

func TestTheHistoryAsJSONSaysWhyARevisionCannotBeRead(t *testing.T) {
	b := coord.NewLocal()
	first, err := revision.Push(t.Context(), b, revision.Request{Bundle: &revision.Bundle{Sources: []string{"a.hcl"}, Files: map[string][]byte{"a.hcl": nil}}, Author: "me@here"})
	if err != nil {
		t.Fatal(err)
	}
	later := coord.Change{Key: "config/shared/revision/0000000002", Value: []byte(`{"format": 99}`)}
	if _, err := b.Commit(t.Context(), coord.Transaction{Then: []coord.Change{later}}); err != nil {
		t.Fatal(err)
	}
	all, err := revision.History(t.Context(), b)
	if err != nil {
		t.Fatal(err)
	}
	var out strings.Builder
	if err := writeRevisionsJSON(&out, all); err != nil {
		t.Fatal(err)
	}
	var got []map[string]any
	if err := json.Unmarshal([]byte(out.String()), &got); err != nil {
		t.Fatal(err)
	}
	if len(got) != 2 || got[0]["id"] != first.ID || got[0]["author"] != "me@here" || got[0]["error"] != nil {
		t.Errorf("got %s", out.String())
	}
	if len(got) != 2 || len(got[1]) != 2 || got[1]["number"] != 2.0 || got[1]["error"] != all[1].Err().Error() {
		t.Errorf("got %s", out.String())
	}
}

func TestAProgramWithoutAStoreNamesTheOneThatHasTheCommand(t *testing.T) {
	root, cluster := &cobra.Command{Use: "sonde", SilenceUsage: true, SilenceErrors: true}, &cobra.Command{Use: "cluster"}
	root.AddCommand(Absent("push"), cluster)
	cluster.AddCommand(Absent("rollback"))
	for want, args := range map[string][]string{"run sonde-fleet push,": {"push", "fleet/", "--yes"}, "run sonde-fleet cluster rollback,": {"cluster", "rollback", "7"}} {
		root.SetArgs(args)
		if err := root.Execute(); err == nil || !strings.Contains(err.Error(), want) {
			t.Errorf("%v: %v, want %s", args, err, want)
		}
	}
}
