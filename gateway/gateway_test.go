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
	"testing/synctest"
	"time"

	"github.com/sonde-probe/sonde/gateway"
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
		report <- func(s *gateway.Session) { s.Report(map[string]error{"socket": nil}) }
		report <- func(s *gateway.Session) { s.Failed("socket", errors.New("refused")) }
		report <- func(s *gateway.Session) { s.Failed("socket", errors.New("still refused")) }
		report <- (*gateway.Session).Refused
	}
	report <- func(*gateway.Session) {} // the one before has been reported
	st := all.Statuses()[0]
	if st.Outputs != 3 || st.Errors != 6 || st.Refused != 3 || st.Error != "still refused" || st.ErrorSince.Before(st.Last) || st.Gateway != "edge" || st.Output != "test" {
		t.Errorf("the status is %+v", st)
	}
	text := log.String()
	if strings.Count(text, "gateway is not up to date") != 3 || strings.Count(text, "up to date again") != 2 || strings.Contains(text, "still refused") {
		t.Errorf("the log is\n%s", text)
	}
}

// What succeeds for one source hides no failure of another. The status has the first few, and how
// many there are.
func TestEachSourceFailsByItself(t *testing.T) {
	log := &testsync.Buffer{}
	all := gateway.New(gateway.Config{Groups: web{group.NewMirror("web")}, Logger: slog.New(slog.NewTextHandler(log, nil))})
	report := make(chan func(*gateway.Session))
	spec := gateway.Spec{Output: "test", Groups: []string{"web"}, New: func() gateway.Output { return reporter(report) }}
	if err := all.Apply(map[string]gateway.Spec{"edge": spec}); err != nil {
		t.Fatal(err)
	}
	gatewaytest.Run(t, all)
	status := func(do func(*gateway.Session)) group.GatewayStatus {
		report <- do
		report <- func(*gateway.Session) {} // the one before has been reported
		return all.Statuses()[0]
	}
	status(func(s *gateway.Session) { s.Failed("group b", errors.New("no backend b")) })
	st := status(func(s *gateway.Session) {
		s.Report(map[string]error{"group a": nil, "group b": errors.New("still no backend b"), "group c": errors.New("no backend c")})
	})
	if st.Error != "still no backend b; no backend c" || st.Failing != 2 || st.Failures[1].Source != "group c" || st.Errors != 2 || st.Outputs != 0 {
		t.Errorf("the status is %+v", st)
	}
	since := st.ErrorSince
	if st = status(func(s *gateway.Session) { s.Report(map[string]error{"group a": nil, "group b": nil}) }); st.Error != "no backend c" || st.ErrorSince != since || st.Outputs != 1 {
		t.Errorf("the status is %+v", st)
	}
	if st = status(func(s *gateway.Session) { s.Cured("group c") }); st.Error != "" || !st.ErrorSince.IsZero() || st.Outputs != 1 || st.Failures != nil {
		t.Errorf("the status is %+v", st)
	}
	for _, want := range []string{`"gateway is not up to date" gateway=edge error="no backend b"`, `"gateway is not up to date" gateway=edge error="no backend c"`, `partly up to date again" gateway=edge sources="group b" failing=1`, "up to date again\" gateway=edge failed_for="} {
		if strings.Count(log.String(), want) != 1 {
			t.Errorf("the log has not %s once:\n%s", want, log)
		}
	}
	st = status(func(s *gateway.Session) {
		for i := range 10_000 {
			s.Failed(fmt.Sprintf("stream %04d", i), fmt.Errorf("error %d", i))
		}
	})
	if st.Failing != 2000 || len(st.Failures) != group.MaxGatewayFailures || st.Error != "error 0; error 1; error 2; error 3; error 4; and 1995 more" {
		t.Errorf("the status has %d of %d failures, and the error is %q", len(st.Failures), st.Failing, st.Error)
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

// web has the group "web", of which nothing is known.
type web struct{ *group.Mirror }

func (w web) Get(name string) *group.Group {
	if name != "web" {
		return nil
	}
	return w.Group
}

// hanging is an output that does not end before it is released, as one does whose disk hangs.
type hanging chan struct{}

func (h hanging) Run(context.Context, *gateway.Session) { <-h }

// An output that hangs keeps neither a reload nor the end from returning, nor those who ask for
// statuses. Its successor waits for it, also under another name and with
// other settings, and says so.
func TestAnOutputThatHangsBlocksNoOther(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		log := &testsync.Buffer{}
		all := gateway.New(gateway.Config{Groups: web{group.NewMirror("web")}, Logger: slog.New(slog.NewTextHandler(log, nil))})
		s := &stage{runs: map[string]bool{}}
		release := make(hanging)
		hung := gateway.Spec{Output: "render", Groups: []string{"web"}, Settings: "1", Resources: []string{"path out"}, New: func() gateway.Output { return release }}
		apply := func(specs map[string]gateway.Spec) (took time.Duration) {
			t.Helper()
			began, asked := time.Now(), make(chan struct{})
			go func() {
				defer close(asked)
				time.Sleep(time.Millisecond)
				if n := len(all.Statuses()); n != len(specs) {
					t.Errorf("during the reload there are %d gateways, want %d", n, len(specs))
				}
			}()
			if err := all.Apply(specs); err != nil {
				t.Fatal(err)
			}
			took = time.Since(began)
			<-asked
			synctest.Wait()
			return took
		}
		failing := func(want ...bool) {
			t.Helper()
			time.Sleep(5 * time.Second)
			for i, st := range all.Statuses() {
				const problem = `waiting for the replaced output to stop: gateway "a" (render) still runs after 3s`
				if is := st.Error == problem; is != want[i] {
					t.Errorf("gateway %s has the error %q", st.Gateway, st.Error)
				}
			}
		}
		ctx, cancel := context.WithCancel(t.Context())
		ended := make(chan struct{})
		go func() { defer close(ended); _ = all.Run(ctx) }()
		apply(map[string]gateway.Spec{"a": hung, "b": hung, "c": s.spec("c", "1")})
		synctest.Wait()

		next := s.spec("renamed", "1")
		next.Output, next.Settings, next.Resources = "render", "another", []string{"listen :80", "path out"}
		if took := apply(map[string]gateway.Spec{"a": s.spec("a", "2"), "c": s.spec("c", "2"), "d": next}); took != 3*time.Second {
			t.Errorf("the reload took %v", took)
		}
		if is := s.running(); is != "2 c 2" {
			t.Errorf("after the reload these have run and run: %s", is)
		}
		if text := log.String(); strings.Count(text, "has not stopped: a file system") != 2 || !strings.Contains(text, "gateway=a output=render after=3s") {
			t.Errorf("the log is\n%s", text)
		}
		failing(true, false, true)
		apply(map[string]gateway.Spec{"c": s.spec("c", "2")})
		apply(map[string]gateway.Spec{"a": s.spec("a", "3"), "c": s.spec("c", "2")}) // the one that hangs is known also after it was removed
		failing(true, false)
		close(release)
		synctest.Wait()
		if is := s.running(); is != "3 a 3, c 2" {
			t.Errorf("after the end of what hung these have run and run: %s", is)
		}
		failing(false, false)

		stuck := make(hanging)
		apply(map[string]gateway.Spec{"e": {Output: "render", Groups: []string{"web"}, New: func() gateway.Output { return stuck }}})
		began := time.Now()
		cancel()
		<-ended
		if took := time.Since(began); took != 3*time.Second || !strings.Contains(log.String(), "gateway=e output=render after=3s") {
			t.Errorf("the end took %v, and the log is\n%s", took, log.String())
		}
		close(stuck)
	})
}
