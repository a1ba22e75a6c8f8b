package engine_test

import (
	"encoding/json"
	"fmt"
	"strings"
	"testing"
	"time"

	"github.com/sonde-probe/sonde/engine"
	"github.com/sonde-probe/sonde/probe"
)

// spans returns the spans of web as text: how many seconds ago each began, and its state.
func spans(t *testing.T, e *engine.Engine) string {
	t.Helper()
	up, ok := e.Records().Uptime("web")
	if !ok {
		t.Fatal("there is no target")
	}
	var all []string
	for _, s := range up.Spans {
		state := s.State.String()
		if s.Unknown {
			state = "unknown"
		}
		all = append(all, fmt.Sprintf("%v %s", up.To.Sub(s.From).Round(time.Minute), state))
	}
	return strings.Join(all, ", ")
}

// heir returns an engine that resumes from the records of another one, as by means of the state file.
func heir(t *testing.T, e *engine.Engine, stopped time.Time) *engine.Engine {
	t.Helper()
	next, saved := engine.New(engine.Config{}), map[string]func(any) error{}
	for _, name := range e.Records().Uptimes() {
		value, _ := e.Records().SavedUptime(name)
		text, err := json.Marshal(value)
		if err != nil {
			t.Fatal(err)
		}
		saved[name] = func(into any) error { return json.Unmarshal(text, into) }
	}
	if err := next.Records().RestoreUptimes(saved, e.Records().Gaps(), stopped, 0); err != nil {
		t.Fatal(err)
	}
	return next
}

func TestUptimeShowsAFailureAtItsPlaceAfterARestartOfTheEngine(t *testing.T) {
	ready := says(probe.Success)
	set := probe.Set{readiness: with(ready)}
	bubble(t, engine.Config{}, func(t *testing.T, e *engine.Engine) {
		apply(t, e, set)
		began := time.Now()
		first := instance("1")
		e.Report(first)
		pass(2 * time.Hour)
		if got := spans(t, e); got != "24h0m0s unknown, 2h0m0s ready" || e.Records().Uptimes() != nil {
			t.Errorf("a target that is well: %s, and %v takes memory", got, e.Records().Uptimes())
		}
		ready.say(probe.Failure)
		pass(10 * time.Minute)
		ready.say(probe.Success)
		pass(50 * time.Minute)
		memory, _ := e.Snapshot(readiness)
		stopped := time.Now()
		time.Sleep(5 * time.Minute)

		next := heir(t, e, stopped)
		running(t, next, func() {
			if _, err := next.Change(engine.Change{Set: set, Memories: map[probe.ID]engine.Memory{readiness: memory}}); err != nil {
				t.Fatal(err)
			}
			next.Report(first)
			pass(55 * time.Minute)
			want := "24h0m0s unknown, 4h0m0s ready, 2h0m0s not_ready, 1h50m0s ready, 1h0m0s unknown, 55m0s ready"
			if got := spans(t, next); got != want {
				t.Errorf("got  %s\nwant %s", got, want)
			}
			up, _ := next.Records().Uptime("web")
			if down := up.Day.Down.Round(time.Minute); down != 10*time.Minute || up.Day.Up+up.Day.Down != time.Since(began)-5*time.Minute || up.Week != up.Day {
				t.Errorf("%+v in a day, %+v in a week, %v after the start", up.Day, up.Week, time.Since(began))
			}
		})
	})
}

// While a target is absent, another engine may have it, and its state in that time is not known.
func TestUptimeOfATargetThatComesBackBeginsAnew(t *testing.T) {
	ready := says(probe.Success)
	set := probe.Set{readiness: with(ready)}
	bubble(t, engine.Config{}, func(t *testing.T, e *engine.Engine) {
		apply(t, e, set)
		e.Report(instance("1"))
		pass(time.Hour)
		ready.say(probe.Failure)
		pass(time.Hour)
		ready.say(probe.Success)
		pass(time.Hour)
		apply(t, e, probe.Set{})
		e.Admin().Withdraw("web")
		pass(time.Hour)
		if _, ok := e.Records().Uptime("web"); ok {
			t.Error("a target that is not there has an uptime")
		}
		apply(t, e, set)
		e.Report(instance("2"))
		pass(time.Hour)
		if got := spans(t, e); got != "24h0m0s unknown, 1h0m0s ready" {
			t.Errorf("got %s", got)
		}
	})
}

// A target that flaps all the time takes bounded memory, and discarded states are unknown.
func TestUptimeOfATargetThatFlapsIsBounded(t *testing.T) {
	bubble(t, engine.Config{}, func(t *testing.T, e *engine.Engine) {
		h := says(probe.Success)
		p := with(h)
		p.Rule = probe.Rule{Period: time.Second, FailureThreshold: 1, SuccessThreshold: 1}
		apply(t, e, probe.Set{readiness: p})
		e.Report(instance("1"))
		for range 3000 {
			h.say(probe.Failure)
			pass(5 * time.Second)
			h.say(probe.Success)
			pass(5 * time.Second)
		}
		value, _ := e.Records().SavedUptime("web")
		if text, err := json.Marshal(value); err != nil || len(text) > 2048 {
			t.Errorf("%d bytes, %v", len(text), err)
		}
		up, _ := e.Records().Uptime("web")
		if n := len(up.Spans); !up.Spans[0].Unknown || n < 200 || n > 520 {
			t.Errorf("%d spans, the first %+v", n, up.Spans[0])
		}
		if ratio, ok := up.Week.Ratio(); !ok || ratio < 0.4 || ratio > 0.6 {
			t.Errorf("available %v, %v", ratio, ok)
		}
	})
}

func TestUptimesThatCannotBeAreLeftOut(t *testing.T) {
	good := `{"began":100,"first":100,"states":"oQI=","since":109,"state":"ready"}` // nine seconds cannot_start
	for text, ok := range map[string]bool{
		good: true,
		`{`:  false,
		`{"began":100,"first":100,"states":"gICAgICAgICAgICA","since":109,"state":"ready"}`: false,
		`{"began":100,"first":100,"states":"oQI=","since":9000,"state":"ready"}`:            false,
		`{"began":200,"first":100,"since":100,"state":"ready"}`:                             false,
		`{"began":100,"first":100,"since":100,"state":"ready","hours":[[5,3000,3000]]}`:     false,
		`{"began":100,"first":100,"since":100,"state":"ready","hours":[[5,1,1],[5,1,1]]}`:   false,
		`{"began":100,"first":100,"since":100,"state":"no such state"}`:                     false,
	} {
		e := engine.New(engine.Config{})
		err := e.Records().RestoreUptimes(map[string]func(any) error{"web": func(into any) error { return json.Unmarshal([]byte(text), into) }}, nil, time.Now(), 0)
		if (err == nil) != ok || len(e.Records().Uptimes()) != 0 && !ok {
			t.Errorf("%s: %v", text, err)
		}
	}
}
