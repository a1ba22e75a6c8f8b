package gateway_test

import (
	"context"
	"errors"
	"fmt"
	"log/slog"
	"slices"
	"strings"
	"sync"
	"testing"

	"github.com/sonde-probe/sonde/adapter/gateway"
	"github.com/sonde-probe/sonde/group"
	"github.com/sonde-probe/sonde/tests/gatewaytest"
	"github.com/sonde-probe/sonde/tests/testsync"
)

// stage records which outputs run.
type stage struct {
	mu      sync.Mutex
	runs    map[string]bool // by name and settings
	started int
}

func (s *stage) spec(name, settings string) gateway.Spec {
	return gateway.Spec{Output: "test", Groups: []string{"web"}, Settings: settings, New: func() gateway.Output { return output{s, name + " " + settings} }}
}

func (s *stage) running() string {
	s.mu.Lock()
	defer s.mu.Unlock()
	var all []string
	for name, runs := range s.runs {
		if runs {
			all = append(all, name)
		}
	}
	slices.Sort(all)
	return fmt.Sprint(s.started, " ", strings.Join(all, ", "))
}

type output struct {
	stage *stage
	name  string
}

func (o output) set(runs bool) {
	o.stage.mu.Lock()
	defer o.stage.mu.Unlock()
	if o.stage.runs[o.name] = runs; runs {
		o.stage.started++
	}
}

func (o output) Run(ctx context.Context, _ *gateway.Session) {
	o.set(true)
	defer o.set(false)
	<-ctx.Done()
}

// A reload leaves gateways that have not changed as they are, and the predecessor of one that
// has changed has ended before it starts.
func TestAReloadReplacesWhatHasChanged(t *testing.T) {
	scene := gatewaytest.New(t, group.Rule{}, map[string]string{"a": ""})
	s := &stage{runs: map[string]bool{}}
	all := gateway.New(gateway.Config{Groups: scene.Groups})
	is := func(want string) {
		t.Helper()
		testsync.Until(t, "outputs: "+want, func() bool { return s.running() == want })
	}
	apply := func(specs map[string]gateway.Spec) {
		t.Helper()
		if err := all.Apply(specs); err != nil {
			t.Fatal(err)
		}
	}
	apply(map[string]gateway.Spec{"a": s.spec("a", "1"), "b": s.spec("b", "1")})
	is("0 ")
	stop := gatewaytest.Run(t, all)
	is("2 a 1, b 1")
	apply(map[string]gateway.Spec{"a": s.spec("a", "1"), "b": s.spec("b", "2")})
	is("3 a 1, b 2")
	apply(map[string]gateway.Spec{"a": s.spec("a", "1"), "c": s.spec("c", "1")})
	is("4 a 1, c 1")
	if err := scene.Groups.Apply(nil); err != nil {
		t.Fatal(err)
	}
	if err := scene.Groups.Apply(map[string]group.Rule{"web": {}}); err != nil {
		t.Fatal(err)
	}
	apply(map[string]gateway.Spec{"a": s.spec("a", "1")}) // its group is another one
	is("5 a 1")
	stop()
	is("5 ")
	apply(map[string]gateway.Spec{"a": s.spec("a", "9")})
	is("5 ")
}

func TestASeriesOfFailuresIsLoggedOnce(t *testing.T) {
	scene := gatewaytest.New(t, group.Rule{}, nil)
	log := &testsync.Buffer{}
	all := gateway.New(gateway.Config{Groups: scene.Groups, Logger: slog.New(slog.NewTextHandler(log, nil))})
	report := make(chan func(*gateway.Session))
	spec := gateway.Spec{Output: "test", Groups: []string{"web"}, New: func() gateway.Output { return reporter(report) }}
	if err := all.Apply(map[string]gateway.Spec{"edge": spec}); err != nil {
		t.Fatal(err)
	}
	gatewaytest.Run(t, all)
	for range 3 {
		report <- (*gateway.Session).Succeeded
		report <- func(s *gateway.Session) { s.Failed(errors.New("refused")) }
		report <- func(s *gateway.Session) { s.Failed(errors.New("still refused")) }
		report <- (*gateway.Session).Refused
	}
	report <- func(*gateway.Session) {} // the one before has been reported
	st := all.Statuses()[0]
	if st.Outputs != 3 || st.Errors != 9 || st.Error != "still refused" || st.ErrorSince.Before(st.Last) || st.Gateway != "edge" || st.Output != "test" {
		t.Errorf("the status is %+v", st)
	}
	text := log.String()
	if strings.Count(text, "gateway is not up to date") != 3 || strings.Count(text, "gateway is up to date again") != 2 || strings.Contains(text, "still refused") {
		t.Errorf("the log is\n%s", text)
	}
}

// reporter does with its session what it is given.
type reporter chan func(*gateway.Session)

func (r reporter) Run(ctx context.Context, s *gateway.Session) {
	for {
		select {
		case <-ctx.Done():
			return
		case report := <-r:
			report(s)
		}
	}
}
