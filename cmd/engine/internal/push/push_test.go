package push

import (
	"errors"
	"slices"
	"strings"
	"testing"

	"github.com/spf13/cobra"

	"github.com/sonde-probe/sonde/coord/revision"
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
		"": "nothing is pushed: nobody has answered, write --yes where nobody can",
	} {
		var out strings.Builder
		c := &cobra.Command{}
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
			&revision.RefusedError{Engines: 3, Refused: []revision.Engine{refusing("a", "two\nlines\n"), refusing("b\x1b[2J", "no")}},
			"a refuses it:\n  two\n  lines\nb", "nothing is changed: 2 of 3 engines have refused it",
		},
		{&revision.RefusedError{Engines: 9, Refused: many}, "… and 2 engines more\n", "nothing is changed: 7 of 9 engines have refused it"},
		{&revision.RefusedError{Engines: 3, Silent: []string{"a"}}, "", "nothing is changed: 1 of 3 engines have not answered: a; push again with a longer --timeout, or with --ignore-silent"},
		{&revision.RefusedError{}, "", "nothing is changed: no engine follows the configuration, so that none has checked it; start one, or push with --ignore-silent"},
	} {
		var out strings.Builder
		err := showRefusals(&out, c.refused)
		if err == nil || err.Error() != c.error || !strings.Contains(out.String(), c.text) || strings.Contains(out.String(), "\x1b") {
			t.Errorf("got %v\n%q\nwant %s\n%q", err, out.String(), c.error, c.text)
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
	r := revision.Revision{Number: 3}
	for want, c := range map[string]struct {
		engines []revision.Engine
		err     error
	}{
		"revision 3 is current, in use by 1 engine\n":                              {[]revision.Engine{using}, nil},
		"revision 3 is current; no engine follows the configuration yet\n":         {nil, nil},
		"d refuses it:\n  no memory\nrevision 3 is current; 1 of 2 engines use it": {[]revision.Engine{using, refusing}, errors.New("")},
	} {
		var out strings.Builder
		err := usesOf(c.engines, ref).write(&out, &out, r)
		if err != nil {
			out.WriteString(err.Error())
		}
		if (err != nil) != (c.err != nil) || out.String() != want {
			t.Errorf("got %v\n%s\nwant %s", err, out.String(), want)
		}
	}
}
