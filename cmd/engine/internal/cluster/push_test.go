package cluster

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

	"github.com/sonde-probe/sonde/cmd/engine/internal/cli"
	"github.com/sonde-probe/sonde/config"
	"github.com/sonde-probe/sonde/fleet/coord"
	"github.com/sonde-probe/sonde/fleet/revision"
	"github.com/sonde-probe/sonde/tests/coordtest"
	"github.com/sonde-probe/sonde/tests/testsync"
)

func TestARollbackHasTheRevisionBeforeTheCurrent(t *testing.T) {
	all := []revision.Revision{{Number: 4, Digest: "4"}, {Number: 5, Digest: "5"}, {Number: 7, Digest: "7"}}
	forced := append(slices.Clip(all), revision.Revision{Number: 8, Digest: "7"}) // pushed again after engines have refused 7
	trial := revision.Revision{Number: 8, Digest: "8", Engine: "a"}
	tried := append(slices.Clip(all), trial)
	for _, c := range []struct {
		seen   revision.Overview
		number int64
		want   int64
		err    string
	}{
		{revision.Overview{History: all}, 0, 5, ""},
		{revision.Overview{History: all}, 4, 4, ""},
		{revision.Overview{History: all}, 7, 0, "revision 7 is the current one"},
		{revision.Overview{History: all}, 6, 0, "there is no revision 6: those from 4 to 7 are kept"},
		{revision.Overview{History: forced}, 0, 5, ""},
		{revision.Overview{History: forced}, 7, 7, ""},
		{revision.Overview{History: all[:1]}, 0, 0, "there is no earlier revision"},
		{revision.Overview{}, 3, 0, "there is no revision"},
		{revision.Overview{History: tried}, 0, 7, ""}, // ends the trial
		{revision.Overview{History: tried}, 7, 7, ""},
		{revision.Overview{History: tried}, 5, 5, ""},
		{revision.Overview{History: []revision.Revision{all[0], trial}}, 0, 4, ""},
		{revision.Overview{History: tried}, 8, 8, ""}, // for all engines
		{revision.Overview{History: tried}, 9, 0, "there is no revision 9: those from 4 to 8 are kept"},
		{revision.Overview{History: append(slices.Clip(tried), revision.Revision{Number: 9, Digest: "9"})}, 0, 7, ""}, // not the trial
	} {
		earlier, err := pick(c.seen, c.number)
		switch {
		case c.err != "":
			if err == nil || !strings.HasPrefix(err.Error(), c.err) {
				t.Errorf("%d of %+v: %v, want %q", c.number, c.seen, err, c.err)
			}
		case err != nil || earlier.Number != c.want:
			t.Errorf("%d of %+v: %d, %v", c.number, c.seen, earlier.Number, err)
		}
	}
}

// The files of the revision before the current one are missing, and the one before that cannot be read. A rollback without a
// number goes further back and reports the skipped revisions. With a number it fails.
func TestARollbackLeavesOutDamagedRevisions(t *testing.T) {
	b := coordtest.NewLocal()
	for n := range 4 {
		seen, err := revision.Read(t.Context(), b)
		if err != nil {
			t.Fatal(err)
		}
		if _, err := revision.Push(t.Context(), b, seen, revision.Revision{}, &revision.Bundle{Sources: []string{"a.hcl"}, Files: map[string][]byte{"a.hcl": {byte(n)}}}); err != nil {
			t.Fatal(err)
		}
	}
	damage := []coord.Change{{Key: coord.FileKeys.Key("0000000003"), Delete: true}, {Key: coord.ConfigKeys.Key("revision/0000000002"), Value: []byte("?")}}
	if _, err := b.Commit(t.Context(), coord.Transaction{Then: damage}); err != nil {
		t.Fatal(err)
	}
	seen, err := revision.Read(t.Context(), b)
	if err != nil {
		t.Fatal(err)
	}
	var stderr strings.Builder
	c := &cobra.Command{}
	c.SetErr(&stderr)
	c.SetContext(t.Context())
	to := &store{Store: closing{b}}
	earlier, files, err := new(pushFlags).load(c, to, seen, 0)
	if err != nil || earlier.Number != 1 || files == nil {
		t.Errorf("it goes back to %d, %v", earlier.Number, err)
	}
	if want := "left out: revision 3: the revision is damaged: its files are missing\nleft out: revision 2: the revision is damaged"; !strings.HasPrefix(stderr.String(), want) {
		t.Errorf("stderr is %q", stderr.String())
	}
	if _, _, err := new(pushFlags).load(c, to, seen, 3); err == nil || !strings.Contains(err.Error(), "the revision is damaged") {
		t.Errorf("revision 3: %v", err)
	}
}

// closing adds Close to a Backend, to make it a daemon.Store.
type closing struct{ coord.Backend }

func (closing) Close() error { return nil }

func TestATrialNeedsALiveEngineAndARevisionToReturnTo(t *testing.T) {
	history := []revision.Revision{{Number: 1}}
	engines := []revision.Engine{{Name: "a"}, {Name: "b"}}
	for _, c := range []struct {
		seen revision.Overview
		to   string
		err  string
	}{
		{revision.Overview{}, "", ""},
		{revision.Overview{History: history, Engines: engines}, "b", ""},
		{revision.Overview{History: history, Engines: engines}, "c", `engine "c" does not follow the configuration: use --to with one of a, b`},
		{revision.Overview{History: history}, "c", `engine "c" does not follow the configuration: no engine does now`},
		{revision.Overview{Engines: engines}, "b", "no revision for all engines exists yet, so there is nothing to roll back to: push without --to first"},
	} {
		err := checkEngine(c.seen, c.to)
		if err == nil && c.err != "" || err != nil && err.Error() != c.err {
			t.Errorf("%q: %v, want %q", c.to, err, c.err)
		}
	}
}

func TestFilesThatAreInUseAreNotPushedAgain(t *testing.T) {
	one := revision.Revision{Number: 1, Digest: "1"}
	history := []revision.Revision{one}
	refusing := []revision.Engine{{Name: "b", Refused: &revision.Refusal{Ref: one.Ref()}}}
	trial := revision.Revision{Number: 2, Digest: "2", Engine: "a"}
	for _, c := range []struct {
		seen       revision.Overview
		to, digest string
		want       bool
	}{
		{revision.Overview{}, "", "1", false},
		{revision.Overview{History: history}, "", "1", true},
		{revision.Overview{History: history}, "", "2", false},
		{revision.Overview{History: history}, "a", "1", true},
		{revision.Overview{History: history, Engines: refusing}, "", "1", false},          // such as with --force
		{revision.Overview{History: append(slices.Clip(history), trial)}, "", "1", false}, // ends the trial
		{revision.Overview{History: append(slices.Clip(history), trial)}, "", "2", false},
		{revision.Overview{History: append(slices.Clip(history), trial)}, "a", "2", true},
		{revision.Overview{History: append(slices.Clip(history), trial)}, "b", "2", false},
		{revision.Overview{History: append(slices.Clip(history), trial)}, "b", "1", false},
	} {
		if got := isInUse(c.seen, c.to, c.digest); got != c.want {
			t.Errorf("%s to %q of %+v: %v", c.digest, c.to, c.seen, got)
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
		err := confirm(c, "Push this as revision 3?")
		if err == nil && want != "" || err != nil && err.Error() != want || !strings.Contains(out.String(), "Push this as revision 3? [y/N]") {
			t.Errorf("%q: %v, want %q\n%s", answer, err, want, out.String())
		}
	}
}

func TestThePushEndsWhenEachEngineUsesOrRefuses(t *testing.T) {
	first, third := revision.Revision{Number: 1, Digest: "1"}, revision.Revision{Number: 3, Digest: "3"}
	trial := revision.Revision{Number: 4, Digest: "4", Engine: "a"}
	running := func(name string, number int64, digest string) revision.Engine {
		return revision.Engine{Name: name, Running: revision.Ref{Number: number, Digest: digest}}
	}
	refusing := func(name string, r revision.Revision, why string) revision.Engine {
		return revision.Engine{Name: name, Refused: &revision.Refusal{Ref: r.Ref(), Error: why}}
	}
	for _, c := range []struct {
		of      revision.Revision
		engines []revision.Engine
		waiting []string
		text    string
		code    int // exit code
	}{
		{of: third, text: "revision 3 is current, and no engine follows the configuration now\n"},
		{of: third, engines: []revision.Engine{running("a", 3, "3")}, text: "a uses it\nrevision 3 is current, in use by 1 engine\n"},
		{
			of: third, engines: []revision.Engine{running("a", 3, "3"), running("b", 2, "2"), running("c", 3, "other")}, waiting: []string{"b", "c"}, code: 1,
			text: "a uses it\nrevision 3 is current; these engines have not responded yet: b, c; see sonde-fleet cluster members",
		},
		{
			of: third, engines: []revision.Engine{refusing("a", third, "no"), running("b", 2, "2")}, waiting: []string{"b"}, code: 3,
			text: "a refuses it, and keeps what it runs:\n  no\nrevision 3 is current; 1 of 2 engines refused it; undo it with sonde-fleet cluster rollback; " +
				"these engines have not responded yet: b; see sonde-fleet cluster members",
		},
		{
			of: third, engines: []revision.Engine{running("a\x1b", 3, "3"), refusing("b\x1b", third, "two\n\x1b[2Jlines\n")}, code: 3,
			text: "a\ufffd uses it\nb\ufffd refuses it, and keeps what it runs:\n  two\n  \ufffd[2Jlines\n" +
				"revision 3 is current; 1 of 2 engines refused it; undo it with sonde-fleet cluster rollback",
		},
		{of: trial, engines: []revision.Engine{running("a", 4, "4"), running("b", 3, "3")}, text: "a uses it\nthe trial of revision 4 is stored, in use by 1 engine\n"},
		{
			of: trial, engines: []revision.Engine{refusing("a", trial, "no"), running("b", 3, "3")}, code: 3,
			text: "a refuses it, and keeps what it runs:\n  no\nthe trial of revision 4 is stored; 1 of 1 engine refused it; undo it with sonde-fleet cluster rollback",
		},
		{
			of: trial, engines: []revision.Engine{running("b", 3, "3")}, waiting: []string{"a"}, code: 1,
			text: "the trial of revision 4 is stored; these engines have not responded yet: a; see sonde-fleet cluster members",
		},
		{
			of: first, engines: []revision.Engine{refusing("a", first, "no")}, code: 3, // there is nothing to roll back to
			text: "a refuses it, and keeps what it runs:\n  no\nrevision 1 is current; 1 of 1 engine refused it; correct the files and push again",
		},
	} {
		history := []revision.Revision{first, third}
		if c.of == first {
			history = history[:1]
		}
		if c.of.Engine != "" {
			history = append(history, c.of)
		}
		a := answersTo(c.of, revision.Overview{History: history, Engines: c.engines})
		if a.isReplaced || !slices.Equal(a.waiting, c.waiting) {
			t.Errorf("%v: %+v, want waiting %q", c.engines, a, c.waiting)
		}
		var out strings.Builder
		err := a.write(&out, &out, c.of)
		if err != nil {
			out.WriteString(err.Error())
		}
		if code := cli.ExitCode(&cobra.Command{}, err, true); err != nil && code != c.code || (err != nil) != (c.code != 0) || out.String() != c.text {
			t.Errorf("got %v\n%s\nwant %d\n%s", err, out.String(), c.code, c.text)
		}
	}
}

// lasting is a store that ignores Close.
type lasting struct{ coord.Backend }

func (lasting) Close() error { return nil }

func TestThePushEndsWhenAnotherPushReplacesIt(t *testing.T) {
	b := coordtest.NewLocal()
	files := &revision.Bundle{Sources: []string{"a.hcl"}, Files: map[string][]byte{"a.hcl": nil}}
	var pushed []revision.Revision
	for i, r := range []revision.Revision{{}, {Engine: "a"}, {}} {
		files.Files["a.hcl"] = []byte{byte(i)}
		seen, err := revision.Read(t.Context(), b)
		if err != nil {
			t.Fatal(err)
		}
		if r, err = revision.Push(t.Context(), b, seen, r, files); err != nil {
			t.Fatal(err)
		}
		pushed = append(pushed, r)
	}
	to := &store{Store: lasting{b}}
	for i, want := range []string{"revision 1 was replaced by another push", "the trial of revision 2 was replaced", "revision 3 is current"} {
		var out strings.Builder
		if err := to.await(t.Context(), &out, &out, nil, pushed[i], time.Minute); err != nil {
			out.WriteString(err.Error())
		}
		if !strings.HasPrefix(out.String(), want) {
			t.Errorf("got %s, want %s", out.String(), want)
		}
	}
}

func TestTheQuestionEndsWithAnInterrupt(t *testing.T) {
	in, writer := io.Pipe() // a terminal without input
	defer writer.Close()
	ctx, interrupt := context.WithCancel(t.Context())
	interrupt()
	c := &cobra.Command{}
	c.SetContext(ctx)
	c.SetIn(in)
	c.SetOut(io.Discard)
	answered := make(chan error)
	go func() { answered <- confirm(c, "Push this as revision 3?") }()
	if err := testsync.Receive(t, "the end of the question", answered); err == nil || err.Error() != "nothing is pushed: interrupted" {
		t.Errorf("got %v", err)
	}
}

// failing is a store that responds only once.
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
	third := revision.Revision{Format: 2, Number: 3, Digest: "3"}
	encode := func(v any) []byte {
		text, err := json.Marshal(v)
		if err != nil {
			t.Fatal(err)
		}
		return text
	}
	entries := []coord.Entry{
		{Key: "config/shared/engine/a", Value: encode(revision.Engine{Running: third.Ref()})},
		{Key: "config/shared/engine/b\x1b", Value: encode(revision.Engine{Running: revision.Ref{Number: 2, Digest: "2"}})},
		{Key: "config/shared/revision/0000000003", Value: encode(third)},
	}
	refusing := coord.Entry{Key: "config/shared/engine/c", Value: encode(revision.Engine{Refused: &revision.Refusal{Ref: third.Ref(), Error: "no"}})}
	for _, c := range []struct {
		store *failing
		want  string
		code  int // exit code
	}{
		{&failing{entries: entries}, "a uses it\nrevision 3 is current; these engines have not responded yet: b\ufffd; see sonde", 1},
		{&failing{calls: 1}, "revision 3 is stored, but it is unknown which engines use it: read the revisions of the configuration: the store is away; see sonde", 1},
		{
			&failing{entries: append(slices.Clip(entries), refusing)}, "a uses it\nc refuses it, and keeps what it runs:\n  no\n" +
				"revision 3 is current; 1 of 3 engines refused it; correct the files and push again; these engines have not responded yet: b\ufffd; see sonde", 3,
		},
	} {
		synctest.Test(t, func(t *testing.T) {
			var out strings.Builder
			to := &store{Store: c.store, config: &config.Config{Cluster: &config.Cluster{}}}
			err := to.await(t.Context(), &out, &out, nil, third, time.Minute)
			if err != nil {
				out.WriteString(err.Error())
			}
			if code := cli.ExitCode(&cobra.Command{}, err, true); err == nil || code != c.code || !strings.HasPrefix(out.String(), c.want) {
				t.Errorf("got %d, %s, want %d, %s", code, out.String(), c.code, c.want)
			}
		})
	}
}

func TestTheHistoryHasARowForEachRevision(t *testing.T) {
	var out strings.Builder
	second := revision.Revision{Number: 12, Author: "me@here", Restores: 1}
	err := writeRevisions(&out, revision.Overview{
		History: []revision.Revision{
			{Number: 1, Author: "me@here", Message: "first"}, second, {Number: 13, Author: "me@here", Restores: 1, Message: "again"},
			{Number: 14, Engine: "a\x1b"},
		},
		Engines: []revision.Engine{{Running: second.Ref()}, {Running: second.Ref()}},
	})
	if err != nil {
		t.Fatal(err)
	}
	lines := strings.Split(out.String(), "\n")
	for i, want := range []string{"NOTE", "first", "has the files of 1", "has the files of 1: again", "a trial at a\ufffd"} {
		if !strings.HasSuffix(lines[i], "  "+want) || strings.Index(lines[i], want) != strings.Index(lines[0], "NOTE") {
			t.Errorf("line %d is %q, which ends without %q below NOTE", i, lines[i], want)
		}
	}
	if !strings.Contains(lines[1], "  0 engines  ") || !strings.Contains(lines[2], "  2 engines  ") {
		t.Errorf("who uses them: %s", out.String())
	}
}

func TestAProgramWithoutAStoreNamesTheOneThatHasTheCommand(t *testing.T) {
	root, cluster := &cobra.Command{Use: "sonde", SilenceUsage: true, SilenceErrors: true}, &cobra.Command{Use: "cluster"}
	root.AddCommand(Push(nil), cluster)
	cluster.AddCommand(Commands(nil)...)
	for want, args := range map[string][]string{"run sonde-fleet push,": {"push", "fleet/", "--yes"}, "run sonde-fleet cluster rollback,": {"cluster", "rollback", "7"}} {
		root.SetArgs(args)
		if err := root.Execute(); err == nil || !strings.Contains(err.Error(), want) {
			t.Errorf("%v: %v, want %s", args, err, want)
		}
	}
}
