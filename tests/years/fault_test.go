package years

import (
	"flag"
	"os/exec"
	"path/filepath"
	"regexp"
	"strconv"
	"testing"

	"github.com/sonde-probe/sonde/tests/plant"
)

var planted = flag.String("planted", "", "plant the faults whose names match this regular expression, and check that they are found")

// fault is a bug to plant in the product: a text that occurs once in a file, and its replacement. A law must detect it.
type fault struct {
	name string
	law  string
	file string
	old  string
	new  string
}

func faults() []fault {
	const (
		judge      = "engine/verdict/verdict.go"
		instanceGo = "restart/instance.go"
	)
	return []fault{
		{name: "a restart because of readiness", law: "restart", file: "engine/status.go",
			old: "s.Instance == id && s.ID.Kind != probe.Readiness", new: "s.Instance == id"},
		{name: "one failure too few", law: "verdict", file: judge,
			old: "return s.Run >= r.Threshold(s.Last)", new: "return s.Run >= r.Threshold(s.Last) || s.Last == probe.Failure && s.Run >= r.FailureThreshold-1"},
		{name: "a failure that weighs too much", law: "verdict", file: "engine/verdict/evidence.go",
			old: "s.Run+probe.FailureWeight)", new: "s.Run+2*probe.FailureWeight)"},
		{name: "evidence that recovers at once", law: "verdict", file: "engine/verdict/evidence.go",
			old: "case alarmed && !s.alarmed():", new: "case alarmed && succeeded:"},
		{name: "an error that counts", law: "verdict", file: judge,
			old: "if r.OnError == probe.ErrorIgnored {", new: "if r.OnError == probe.ErrorIgnored && s.Errors < 2 {"},
		{name: "a lack of descriptors that counts", law: "verdict", file: "engine/scheduler.go",
			old: "rule.OnError = probe.ErrorIgnored", new: "_ = rule"},
		{name: "an extra attempt whose failure counts", law: "verdict", file: "engine/start.go",
			old: "Extra: !a.counts}", new: "Extra: false}"},
		{name: "a stall that counts", law: "verdict", file: "engine/attempt.go",
			old: "case stalled(", new: "case false && stalled("},
		{name: "silence that counts although no target answers", law: "verdict", file: "engine/isolation.go",
			old: "return max(judgement, i.addresses.Judge(silence, now))", new: "_ = i.addresses.Judge(silence, now)\n\treturn judgement"},
		{name: "a run that goes on with the next instance", law: "verdict", file: judge,
			old: "if r.Compatibility == probe.Kubelet {\n\t\ts.Last", new: "{\n\t\ts.Last"},
		{name: "a second request to end", law: "once", file: instanceGo,
			old: "i.notBefore = now.Add(grace + forceTimeout)", new: "i.notBefore = now.Add(time.Second)"},
		{name: "a probe that is not attempted again after an error", law: "truth", file: "engine/start.go",
			old: "; next.WaitReason == verdict.NotWaiting {", new: "; next.WaitReason == verdict.NotWaiting && res.Reason != probe.ReasonResources {"},
		{name: "a supervisor that starts nothing after an exit", law: "truth", file: "restart/unit.go",
			old: "case Always:\n\t\treturn true", new: "case Always:\n\t\treturn failing || code != 0"},
		{name: "a verdict that is not recalled", law: "flap", file: "engine/change.go",
			old: "s.state, s.changes = m.State, m.Changes", new: "s.changes = m.Changes"},
		{name: "a verdict that is not written", law: "flap", file: "agent/store/write.go",
			old: "case len(w.probes)+len(w.keys) > 0 || w.unsynced && w.synced == nil:", new: "case len(w.keys) > 0:"},
		{name: "an address that is not compared", law: "change", file: "engine/plan.go",
			old: "case s.currentAddress() != c.address ||", new: "case"},
		{name: "a verdict that stands at another address", law: "change", file: "engine/apply.go",
			old: "s.state = verdict.Relocate(s.kind, before)", new: "_ = verdict.Relocate"},
		{name: "a memory that is trusted at another address", law: "change", file: "engine/proof.go",
			old: "isMoved := m.Endpoint != 0 &&", new: "isMoved := false &&"},
		{name: "a handler that is not closed", law: "bounds", file: "engine/spec.go",
			old: "if x.specs == 0 && x.attempts == 0 &&", new: "if x.specs < 0 &&"},
		{name: "a state file that only grows", law: "bounds", file: "agent/store/write.go",
			old: "w.journal.Size() > 2*w.base+slack", new: "w.journal.Size() < 0"},
		{name: "a torn file that is damaged", law: "log", file: "internal/journal/read.go",
			old: `r.unlessZeros(errors.New("wrong checksum of a frame"))`, new: `errors.New("wrong checksum of a frame")`},
	}
}

// TestFaultsCanBePlanted checks that all faults match the current source, and that each law has a fault.
func TestFaultsCanBePlanted(t *testing.T) {
	laws := map[string]bool{}
	for _, f := range faults() {
		f.source().Source(t, root)
		laws[f.law] = true
	}
	if len(laws) != 8 {
		t.Errorf("there are faults for the laws %v only", laws)
	}
}

// maxStories is the maximum number of stories that are played until a fault is detected.
const maxStories = 40

// TestPlantedFaultsAreFound plays stories with each fault until its law is broken.
func TestPlantedFaultsAreFound(t *testing.T) {
	if *planted == "" {
		t.Skip("needs -planted, and a minute for each fault")
	}
	wanted := regexp.MustCompile(*planted)
	for _, f := range faults() {
		if !wanted.MatchString(f.name) {
			continue
		}
		t.Run(f.name, func(t *testing.T) {
			binary := f.source().Build(t, root, ".")
			for n := int64(1); n <= maxStories; n++ {
				out, _ := exec.CommandContext(t.Context(), binary, "-test.run=^TestStory$", "-logs=false", "-seed="+strconv.FormatInt(n, 10)).CombinedOutput()
				if broken := brokenLaw.FindSubmatch(out); broken != nil && string(broken[1]) == f.law {
					t.Logf("found in story %d: %s", n, broken[0])
					return
				}
			}
			t.Errorf("no story of %d breaks the law %q", maxStories, f.law)
		})
	}
}

var brokenLaw = regexp.MustCompile(`law "(\w+)": [^\n]*`)

// source returns the fault as a plant.Fault.
func (f fault) source() plant.Fault {
	return plant.Fault{Name: f.name, File: f.file, Old: f.old, New: f.new}
}

// root is the root of the repository.
var root = filepath.Join("..", "..")
