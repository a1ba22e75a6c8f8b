package verdict_test

import (
	"flag"
	"fmt"
	"os"
	"path/filepath"
	"strconv"
	"strings"
	"testing"
	"time"

	"github.com/sonde-probe/sonde/engine/verdict"
	"github.com/sonde-probe/sonde/probe"
)

var rewrite = flag.Bool("rewrite", false, "rewrite the expected lines of testdata")

// TestTraces plays the files of testdata. A file is a list of blocks; a block is
// some events, a line of dashes, and one line of expectation for each event:
//
//	rule KIND [success=N] [failure=N] [delay=D] [policy=evidence] [on_error=fail] [compatibility=kubelet]
//	AT look ID PHASE [since=AT] [started] [managed] [terminating]
//	AT attempt OUTCOME [of=ID] [extra]
//	AT renew
//
// A rule starts another probe. AT is the time of the event, counted from t0. An
// attempt is at the instance last looked at. Lines that begin with # are comments.
func TestTraces(t *testing.T) {
	files, err := filepath.Glob("testdata/*.txt")
	if err != nil || len(files) == 0 {
		t.Fatalf("testdata has %d traces: %v", len(files), err)
	}
	for _, file := range files {
		t.Run(strings.TrimSuffix(filepath.Base(file), ".txt"), func(t *testing.T) { playFile(t, file) })
	}
}

func playFile(t *testing.T, file string) {
	text, err := os.ReadFile(file)
	if err != nil {
		t.Fatal(err)
	}
	got, err := play(string(text))
	if err != nil {
		t.Fatalf("%s: %v", file, err)
	}
	if got == string(text) {
		return
	}
	if *rewrite {
		if err := os.WriteFile(file, []byte(got), 0o644); err != nil {
			t.Fatal(err)
		}
		return
	}
	t.Errorf("%s expects something else (run the test with -rewrite and look at the difference):\n%s", file, got)
}

// play returns the trace with the actual results in place of the expectations.
func play(text string) (string, error) {
	var p player
	blocks := strings.Split(strings.TrimSpace(text), "\n\n")
	for i, block := range blocks {
		events, _, _ := strings.Cut(block, "\n----")
		var lines strings.Builder
		for line := range strings.Lines(events + "\n") {
			if err := p.line(&lines, strings.TrimSpace(line)); err != nil {
				return "", fmt.Errorf("block %d: %q: %w", i+1, line, err)
			}
		}
		blocks[i] = events
		if lines.Len() > 0 {
			blocks[i] += "\n----\n" + strings.TrimSuffix(lines.String(), "\n")
		}
	}
	return strings.Join(blocks, "\n\n") + "\n", nil
}

// player plays the events of a trace for one probe.
type player struct {
	rule     probe.Rule
	state    verdict.State
	instance probe.Instance // instance of the last look
}

// line plays one line and writes the result.
func (p *player) line(w *strings.Builder, line string) error {
	words := strings.Fields(line)
	switch {
	case strings.HasPrefix(line, "#"):
		return nil
	case len(words) > 0 && words[0] == "rule":
		*p = player{}
		return p.setRule(words[1:])
	case len(words) < 2:
		return fmt.Errorf("an event needs a time and a name")
	}
	at, err := time.ParseDuration(words[0])
	if err != nil {
		return err
	}
	next, err := p.event(t0.Add(at), words[1], words[2:])
	fmt.Fprintf(w, "%s %s: %s%s\n", words[0], words[1], stateText(p.state), next)
	return err
}

// event plays an event and returns the result in the form of the trace.
func (p *player) event(now time.Time, name string, words []string) (string, error) {
	var e verdict.Event
	var err error
	switch name {
	case "renew":
		p.state = verdict.Renew(p.rule.Kind, p.state)
		return "", nil
	case "look":
		e, err = p.look(now, words)
	case "attempt":
		e, err = p.attempt(words)
	default:
		err = fmt.Errorf("event %q is not known", name)
	}
	if err != nil {
		return "", err
	}
	var next verdict.Next
	p.state, next = verdict.Step(p.rule, p.state, e, now)
	return " -> " + nextText(e, next), nil
}

// look parses "ID PHASE [since=AT] [started] [managed] [terminating]". Without since, a phase began when it was first seen.
func (p *player) look(now time.Time, words []string) (verdict.Event, error) {
	in, e := probe.Instance{Target: "web", Since: now}, verdict.Event{}
	err := eachWord(words, func(i int, key, value string) (err error) {
		switch {
		case i == 0:
			in.ID = key
		case i == 1:
			err = in.Phase.UnmarshalText([]byte(key))
		case key == "since":
			in.Since, err = parseAt(value)
		case key == "started":
			e.Started = true
		case key == "managed":
			in.Managed = true
		case key == "terminating":
			in.Terminating = true
		default:
			err = fmt.Errorf("word %q is not known", key)
		}
		return err
	})
	if p.instance.ID == in.ID && p.instance.Phase == in.Phase && in.Since.Equal(now) {
		in.Since = p.instance.Since
	}
	p.instance, e.Instance = in, in
	return e, err
}

// attempt parses "OUTCOME [of=ID] [extra]".
func (p *player) attempt(words []string) (verdict.Event, error) {
	e := verdict.Event{Attempted: true, Instance: p.instance}
	err := eachWord(words, func(i int, key, value string) error {
		switch {
		case key == "of":
			e.Instance.ID = value
			return nil
		case key == "extra":
			e.Extra = true
			return nil
		}
		return e.Outcome.UnmarshalText([]byte(key))
	})
	return e, err
}

func (p *player) setRule(words []string) error {
	r := &p.rule
	err := eachWord(words, func(i int, key, value string) (err error) {
		switch key {
		case "success":
			r.SuccessThreshold, err = parseThreshold(value)
		case "failure":
			r.FailureThreshold, err = parseThreshold(value)
		case "delay":
			r.InitialDelay, err = time.ParseDuration(value)
		case "policy":
			err = r.Policy.UnmarshalText([]byte(value))
		case "on_error":
			err = r.OnError.UnmarshalText([]byte(value))
		case "compatibility":
			err = r.Compatibility.UnmarshalText([]byte(value))
		default:
			err = r.Kind.UnmarshalText([]byte(key))
		}
		return err
	})
	p.rule = p.rule.WithDefaults()
	if err != nil {
		return err
	}
	return p.rule.Check()
}

// eachWord calls f with both halves of each "key=value" until f returns an error.
func eachWord(words []string, f func(i int, key, value string) error) error {
	for i, word := range words {
		key, value, _ := strings.Cut(word, "=")
		if err := f(i, key, value); err != nil {
			return err
		}
	}
	return nil
}

func parseAt(s string) (time.Time, error) {
	d, err := time.ParseDuration(s)
	return t0.Add(d), err
}

func parseThreshold(s string) (int32, error) {
	n, err := strconv.ParseInt(s, 10, 32)
	return int32(n), err
}

// stateText formats a state as in a trace: "a passing, success 2, hold".
func stateText(s verdict.State) string {
	if s.Instance == "" {
		s.Instance = "nothing"
	}
	text := s.Instance + " " + s.Verdict.String()
	if s.Policy == probe.PolicyEvidence {
		text += fmt.Sprintf(", %v, score %d", s.Last, s.Score())
	} else if s.Last != probe.Unknown {
		text += fmt.Sprintf(", %v %d", s.Last, s.Run)
	}
	if s.Errors > 0 {
		text += fmt.Sprintf(", errors %d", s.Errors)
	}
	if s.OnHold {
		text += ", hold"
	}
	if s.Down {
		text += ", down"
	}
	return text
}

// nextText formats a result as in a trace: "wait until 5s: initial_delay (changed)".
func nextText(e verdict.Event, n verdict.Next) string {
	text := "wait"
	switch {
	case n.WaitReason == verdict.Finished:
		text = "stop"
	case n.WaitReason == verdict.NotWaiting && !e.Attempted:
		text = "attempt"
	case n.WaitReason == verdict.NotWaiting:
		text = "continue"
	}
	if !n.At.IsZero() {
		text += " until " + n.At.Sub(t0).String()
	}
	if n.WaitReason != verdict.NotWaiting {
		text += ": " + n.WaitReason.String()
	}
	if n.Changed {
		text += " (changed)"
	}
	return text
}

func TestAWrongTraceIsAnError(t *testing.T) {
	for _, text := range []string{
		"rule likeness", "rule readiness failure=x", "rule liveness success=2", "rule startup delay=5",
		"0s", "soon look a running", "0s nap", "0s look a strolling", "0s look a running slowly", "0s attempt nothing",
	} {
		if got, err := play(text); err == nil {
			t.Errorf("%q was played: %q", text, got)
		}
	}
}
