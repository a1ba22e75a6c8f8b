package oracle

import (
	"fmt"
	"slices"
	"strings"
	"sync/atomic"
	"testing"

	kubeprobe "k8s.io/kubernetes/pkg/probe"

	"github.com/sonde-probe/sonde/probe"
)

// handlerRow is a difference between the handlers that is wanted.
type handlerRow struct {
	kubelet string // the outcome that the kubelet's handler has; empty: any
	sonde   string // the outcome that ours has, or refused
	why     string
}

// refused stands for an outcome where New of ours says what is wrong.
const refused = "refused"

// handlerRows are the differences that are wanted, by K number.
func handlerRows() map[string]handlerRow {
	return map[string]handlerRow{
		"K71":  {"unknown", "failure", "a body that breaks off or stalls is a failure, since the target is at fault; with an unaccepted status the body does not matter (not in the kubelet's compatibility)"},
		"K78":  {"failure", "failure", "how the command ended is told before its output, and counts for the bound on both"},
		"K85":  {"", refused, "what cannot be a request is refused when the handler is made, and the field is named"},
		"K86":  {"failure", "success", "what is no link with a path is a path; the kubelet fails it for ever, since it finds no host in it"},
		"K92":  {"success", "failure", "a head of more than 64 KiB is refused; net/http takes 10 MiB"},
		"K94":  {"warning", "success", "a host is the same in upper and lower case, as RFC 3986 says"},
		"K112": {"success", "unknown", "an empty host is no address; it does not mean this machine"},
	}
}

// covers reports whether a row is about the difference of two findings.
func (r handlerRow) covers(kubelet, ours found) bool {
	return (r.kubelet == "" || r.kubelet == kubelet.outcome) && r.sonde == ours.outcome && !kubelet.equal(ours)
}

// handlerCase is an attempt that is made by the kubelet's handler and by ours.
type handlerCase struct {
	name   string // unique
	wanted string // the K number of a difference that is wanted, if one is
	agrees func(*testing.T)
}

func handlerCases() (all []handlerCase) {
	for _, c := range slices.Concat(statusCases(), redirectCases(), pathCases(), headerCases(), bodyCases(), placeCases(), tlsCases(), oddCases()) {
		all = append(all, handlerCase{"http: " + c.name, c.wanted + c.mended, c.agrees})
	}
	for _, c := range tcpCases() {
		all = append(all, handlerCase{"tcp: " + c.name, c.wanted, c.agrees})
	}
	for _, c := range execCases() {
		all = append(all, handlerCase{"exec: " + c.name, c.wanted, c.agrees})
	}
	return all
}

func TestHandlersAgree(t *testing.T) {
	var differ atomic.Int64
	names, wanted := map[string]bool{}, 0
	t.Run("cases", func(t *testing.T) {
		for _, c := range handlerCases() {
			if names[c.name] {
				t.Errorf("there are two cases %q", c.name)
			}
			names[c.name] = true
			if c.wanted != "" {
				wanted++
			}
			t.Run(c.name, func(t *testing.T) {
				t.Parallel()
				if c.agrees(t); t.Failed() {
					differ.Add(1)
				}
			})
		}
	})
	summarise("%d handler cases were compared: %d show a difference that is wanted, %d an unexplained one", len(names), wanted, differ.Load())
}

// summarise prints a sentence of the summary of a run, whether go test is verbose
// or not.
func summarise(format string, args ...any) { fmt.Printf("oracle: "+format+"\n", args...) }

// found is what one attempt has found, and what the server has seen of it.
type found struct {
	outcome  string
	why      string
	requests []string
}

func (f found) String() string {
	return fmt.Sprintf("%s (%.200s) after %d requests:\n    %s", f.outcome, f.why, len(f.requests), strings.Join(f.requests, "\n    "))
}

func (f found) equal(o found) bool {
	return f.outcome == o.outcome && f.why == o.why && slices.Equal(f.requests, o.requests)
}

// tried makes an attempt as runProbeWithRetries of the kubelet does (K69).
func tried(attempt func() (kubeprobe.Result, string, error)) (result kubeprobe.Result, output string, err error) {
	for range maxTries {
		if result, output, err = attempt(); err == nil {
			break
		}
	}
	return result, output, err
}

// kubeletFound names a result of the kubelet's handlers in our words (K70).
func kubeletFound(result kubeprobe.Result, output string, err error, requests []string) found {
	switch {
	case err != nil:
		return found{probe.Unknown.String(), "error", requests}
	case result == kubeprobe.Success:
		return found{probe.Success.String(), "", requests}
	case result == kubeprobe.Warning:
		return found{probe.Warning.String(), "warning", requests}
	}
	return found{probe.Failure.String(), meaning("probe failed: " + output), requests}
}

// agree holds what ours found to what the kubelet's found or, where a difference
// is wanted, to a difference.
func agree(t *testing.T, how, wanted string, kubelet, ours found) {
	t.Helper()
	row, isRow := handlerRows()[wanted]
	switch {
	case wanted == "" && !kubelet.equal(ours):
		t.Errorf("%s\nkubelet: %v\nsonde:   %v", how, kubelet, ours)
	case wanted != "" && !isRow:
		t.Errorf("%s is in no row", wanted)
	case wanted != "" && !row.covers(kubelet, ours):
		t.Errorf("%s %s does not explain\nkubelet: %v\nsonde:   %v", how, wanted, kubelet, ours)
	}
}
