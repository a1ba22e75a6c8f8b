package oracle

import (
	"bytes"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"sync"
	"sync/atomic"
	"testing"

	"github.com/sonde-probe/sonde/tests/plant"
)

// fault is a bug to plant in the product: a text that occurs once in a file, and its replacement.
type fault struct {
	name string
	file string
	old  string
	new  string
	by   string // the test that detects it: empty for TestRegressions, otherwise one of ./times
	main bool   // also planted in a short run
}

// faults returns the bugs to plant, among them an off-by-one in a threshold, a hold that is never lifted, a run that is not reset,
// and a wrong initial verdict.
func faults() []fault {
	const (
		judge     = "engine/verdict/verdict.go"
		times     = "engine/internal/schedule/times.go"
		manager   = "kube/manager.go"
		apart     = "TestAttemptsAreAPeriodApart"
		kills     = "TestContainersAreKilledAtTheKubeletsTimes"
		delays    = "TestFirstAttemptKeepsTheInitialDelay"
		inFlight  = "TestAttemptThatIsStoppedInFlightDoesNotCount"
		restarted = "TestRestartOfTheProberKeepsStartedAndReady"
		removed   = "TestTargetThatIsRemovedEndsLikeThePodOfTheKubelet"
	)
	return []fault{
		{name: "one failure too many", file: "probe/rule.go", main: true,
			old: "if last == Failure {\n\t\treturn r.FailureThreshold", new: "if last == Failure {\n\t\treturn r.FailureThreshold + 1"},
		{name: "a hold that is never lifted", file: judge, main: true,
			old: "*s = State{Instance: in.ID, Verdict: Initial(r.Kind)}",
			new: "*s = State{Instance: in.ID, Verdict: Initial(r.Kind), OnHold: old.OnHold}"},
		{name: "a run that is not reset by a hold", file: judge, main: true,
			old: "s.Run = 0 // K49", new: "_ = s.Run // K49"},
		{name: "readiness that begins as passing", file: judge, main: true,
			old: "case probe.Readiness:\n\t\treturn probe.Failing", new: "case probe.Readiness:\n\t\treturn probe.Passing"},
		{name: "one failure too few", file: "probe/rule.go",
			old: "if last == Failure {\n\t\treturn r.FailureThreshold", new: "if last == Failure {\n\t\treturn r.FailureThreshold - 1"},
		{name: "one success too many", file: "probe/rule.go",
			old: "return r.SuccessThreshold", new: "return r.SuccessThreshold + 1"},
		{name: "no hold", file: judge,
			old: "s.OnHold = true", new: "_ = s.OnHold"},
		{name: "a run that another outcome does not end", file: judge,
			old: "s.Last, s.Run = o, 0", new: "s.Last = o"},
		{name: "a run that ends with the instance", file: judge,
			old: "s.Last, s.Policy, s.Run, s.Errors = old.Last, old.Policy, old.Run, old.Errors", new: "_ = old"},
		{name: "a run that goes on in the next instance by default", file: judge,
			old: "if r.Compatibility == probe.Kubelet {\n\t\ts.Last", new: "{\n\t\ts.Last"},
		{name: "liveness that begins as undecided", file: judge,
			old: "case probe.Liveness:\n\t\treturn probe.Passing", new: "case probe.Liveness:\n\t\treturn probe.Undecided"},
		{name: "readiness before the start", file: judge,
			old: "case r.Kind != probe.Startup && !e.Started:", new: "case r.Kind == probe.Liveness && !e.Started:"},
		{name: "an error that counts", file: judge,
			old: "if r.OnError == probe.ErrorIgnored {", new: "if r.OnError != probe.ErrorIgnored {"},
		{name: "a delay that is not kept", file: judge,
			old: "case now.Before(start):", new: "case now.Before(start) && r.Kind == probe.Readiness:"},
		{name: "a delay from the start of the pod", file: "kube/instances.go",
			old: "state.Running.StartedAt.Time", new: "pod.Status.StartTime.Time"},
		{name: "a delay from the start of the pod, in virtual time", file: "kube/instances.go", by: delays,
			old: "state.Running.StartedAt.Time", new: "pod.Status.StartTime.Time"},
		{name: "a delay behind a startup probe that is not kept", file: judge,
			old: "case now.Before(start):", new: "case now.Before(start) && r.Kind == probe.Startup:"},
		{name: "an extra failure that does not end a run", file: judge,
			old: "if s.Last == probe.Success && r.Policy", new: "if s.Last == probe.Failure && r.Policy"},
		{name: "an exit with code 0 that OnFailure restarts", file: "kube/restarts.go",
			old: "return code != 0", new: "return true"},
		{name: "two tries", file: "engine/attempt.go",
			old: "const maxTries = 3", new: "const maxTries = 2"},
		{name: "warnings that are not counted", file: "api/metrics/kubelet.go",
			old: "p.Attempts[probe.Success] + p.Attempts[probe.Warning]", new: "p.Attempts[probe.Success]"},
		{name: "a pod deletion that is ignored", file: "kube/instances.go",
			old: "Terminating: pod.DeletionTimestamp != nil", new: "Terminating: false"},
		{name: "pods that are ready before they have started", file: "kube/status.go",
			old: "s.Ready = started && isReady(", new: "s.Ready = isReady("},
		{name: "an extra attempt whose failure counts", file: "engine/start.go", main: true,
			old: "Extra: !a.counts}", new: "Extra: false}"},
		{name: "liveness that is attempted at once", file: "engine/spec.go",
			old: "return sp.wakes", new: "return sp.wakes || true"},
		{name: "attempts at 1.3 times the period", file: times, by: apart, main: true,
			old: "Times{Period: int64(period),", new: "Times{Period: int64(period) * 13 / 10,"},
		{name: "liveness that is attempted at once, in virtual time", file: "engine/spec.go", by: kills,
			old: "return sp.wakes", new: "return sp.wakes || true"},
		{name: "attempts at twice the period", file: times, by: apart,
			old: "Times{Period: int64(period),", new: "Times{Period: 2 * int64(period),"},
		{name: "a wrong status in the detail", file: "builtin/http/judge.go",
			old: `return "status " + strconv.Itoa(status)`, new: `return "status " + strconv.Itoa(status/100*100)`},
		{name: "a warning that counts as a failure", file: judge,
			old: "return o == probe.Success || o == probe.Warning", new: "return o == probe.Success"},
		{name: "an error that ends a run", file: judge,
			old: "s.Errors = increment(s.Errors)", new: "s.Errors, s.Run = increment(s.Errors), 0"},
		{name: "a container that runs again and stays down", file: judge,
			old: "s.Verdict, s.Down = Initial(r.Kind), false", new: "s.Down = false"},
		{name: "liveness that passes while nothing runs, with compatibility", file: judge,
			old: "case r.Compatibility == probe.Kubelet:\n\t\ts.Verdict", new: "case r.Compatibility == probe.Kubelet && r.Kind == probe.Liveness:\n\tcase r.Compatibility == probe.Kubelet:\n\t\ts.Verdict"},
		{name: "a startup probe that goes on after it has passed", file: judge,
			old: "case r.Kind == probe.Startup && v == probe.Passing:\n\t\treturn true", new: "case r.Kind == probe.Startup && v == probe.Passing:\n\t\treturn false"},
		{name: "readiness that stops when the pod is deleted", file: judge,
			old: "case in.Terminating && r.Kind != probe.Readiness:", new: "case in.Terminating:"},
		{name: "failures that are not in the metrics", file: "api/metrics/kubelet.go",
			old: "c.failed += p.Attempts[probe.Failure]", new: "_ = p.Attempts[probe.Failure]"},
		{name: "a period that is a tenth too short", file: times, by: apart,
			old: "Times{Period: int64(period), Offset: int64(hash(id) % uint64(period))}",
			new: "Times{Period: int64(period) * 9 / 10, Offset: int64(hash(id) % uint64(period*9/10))}"},
		{name: "a period that drifts", file: times, by: apart,
			old: "return t.From(now + t.Period/2)", new: "return now + t.Period + t.Period/10"},
		{name: "the same offset for all", file: times, by: kills,
			old: "int64(hash(id) % uint64(period))", new: "int64(hash(id) % 2)"},
		{name: "an initial delay that is too long", file: judge, by: delays,
			old: "e.Instance.Since.Add(r.InitialDelay)", new: "e.Instance.Since.Add(r.InitialDelay * 3 / 2)"},
		{name: "an initial delay that is too short", file: judge, by: delays,
			old: "e.Instance.Since.Add(r.InitialDelay)", new: "e.Instance.Since.Add(r.InitialDelay * 2 / 3)"},
		{name: "a timeout that is twice as long", file: "engine/attempt.go", by: "TestHangingAttemptsAreNotMadeUpFor",
			old: "context.WithTimeout(a.ctx, timeout)", new: "context.WithTimeout(a.ctx, 2*timeout)"},
		{name: "a restart that loses ready", file: manager, by: restarted, main: true,
			old: "s.Ready && p.has(id)", new: "false && p.has(id)"},
		{name: "a restart that loses started", file: manager, by: restarted,
			old: "passed.Started && p.has(id)", new: "false && p.has(id)"},
		{name: "a restart that makes ready", file: manager, by: "TestRestartWhileThePodIsNotReadyDoesNotMakeItReady",
			old: "s.Ready && p.has(id)", new: "p.has(id)"},
		{name: "a pod that removes the one with its name", file: manager, by: "TestPodsOfOneNameHaveTheirOwnTimes",
			old: "name := m.unusedName(pod)",
			new: "name := nameOf(pod)\n\tfor uid, other := range m.pods {\n\t\tif other.name == name {\n\t\t\tm.remove(uid)\n\t\t}\n\t}"},
		{name: "a removed pod that becomes ready", file: "kube/status.go", by: "TestPodThatIsRemovedStaysAsItWas",
			old: "return c.ReadinessProbe == nil || s.Ready", new: "return true"},
		{name: "a stop that is ignored", file: manager, by: inFlight, main: true,
			old: "in.Terminating = in.Terminating || p.stopped", new: "in.Terminating = in.Terminating || false"},
		{name: "a removed target that starts", file: "restart/instance.go", by: removed,
			old: "in.Terminating = true", new: "in.Terminating = false"},
		{name: "a removed target that stays ready", file: "engine/read.go", by: removed,
			old: "(in.ready || !in.kept) && !in.terminating", new: "(in.ready || !in.kept)"},
		{name: "a removed manifest whose pod goes on", file: "cmd/engine/internal/manifests/dir.go", by: removed,
			old: "changed = changed || len(d.files[name].targets) > 0\n\t\t\tdelete", new: "delete"},
	}
}

// TestPlantedFaultsAreFound builds this package, or ./times, for each fault against a product with the fault: the test that the
// fault names must detect it. A short run plants only a few faults, because each one takes a build.
func TestPlantedFaultsAreFound(t *testing.T) {
	binaries := map[fault]string{}
	for _, f := range faults() {
		if (f.main || !testing.Short()) && strings.Contains(f.name, *planted) {
			binaries[f] = f.source().Build(t, root, f.pkg())
		}
	}
	t.Parallel() // from here on, the test mostly waits
	const atOnce = 5
	room := make(chan struct{}, atOnce)
	var running sync.WaitGroup
	var found atomic.Int64
	for f, binary := range binaries {
		room <- struct{}{}
		running.Go(func() {
			defer func() { <-room }()
			if f.isFound(t, binary) {
				found.Add(1)
			}
		})
	}
	running.Wait()
	summarise("planted faults: %d, found: %d", len(binaries), found.Load())
}

// isFound runs the test that must detect the fault against a product with it. The regression scripts must fail because of a
// recurring difference, and for no other reason.
func (f fault) isFound(t *testing.T, binary string) bool {
	test, args := f.by, []string(nil)
	if test == "" {
		test, args = "TestRegressions", []string{"-trials=2", "-shrink=false"}
	}
	run := exec.CommandContext(t.Context(), binary, append(args, "-test.run=^"+test+"$")...)
	run.Dir = f.pkg()
	run.Env = append(os.Environ(), "GOFLAGS=-overlay="+plant.Overlay(binary)) // for a test that builds sonde
	out, err := run.CombinedOutput()
	differs := bytes.Contains(out, []byte("--- FAIL: "+test)) && (f.by != "" || bytes.Contains(out, []byte(confirmed)))
	if err == nil || !differs {
		t.Errorf("%s is not found: %v\n%s", f.name, err, out)
		return false
	}
	t.Logf("%s is found:%s", f.name, firstLines(out))
	return true
}

// TestFaultsCanBePlanted checks that all faults match the current source, even in a short run.
func TestFaultsCanBePlanted(t *testing.T) {
	for _, f := range faults() {
		f.source().Source(t, root)
	}
}

// source returns the fault as a plant.Fault.
func (f fault) source() plant.Fault {
	return plant.Fault{Name: f.name, File: f.file, Old: f.old, New: f.new}
}

// root is the root of the repository.
var root = filepath.Join("..", "..")

// pkg returns the package of the test that finds a fault.
func (f fault) pkg() string {
	if f.by == "" {
		return "."
	}
	return "./times"
}

// firstLines returns the first difference in a test's output.
func firstLines(out []byte) string {
	_, found, differs := strings.Cut(string(out), confirmed)
	if !differs {
		_, found, _ = strings.Cut(string(out), "_test.go:")
	}
	lines := strings.SplitN(found, "\n", 4)
	return strings.Join(lines[:min(3, len(lines))], "\n")
}
