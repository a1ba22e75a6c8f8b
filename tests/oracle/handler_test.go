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

// handlerRow is an intended difference between the handlers.
type handlerRow struct {
	kubelet string // outcome of the kubelet's handler; empty: any
	sonde   string // outcome of Sonde's handler, or refused
	why     string
}

// refused is the outcome when New returns an error.
const refused = "refused"

// handlerRows are the intended differences by K number.
func handlerRows() map[string]handlerRow {
	return map[string]handlerRow{
		"K71":  {"unknown", "failure", "a response body that is cut short or stalls is a failure of the target; with a failing status the body does not matter (not with the kubelet's compatibility)"},
		"K78":  {"failure", "failure", "the detail starts with the exit status, which counts towards the limit of the output"},
		"K85":  {"", refused, "an invalid host, header or path is rejected when the handler is created, and the error names the field"},
		"K110": {"", refused, "an invalid port is rejected when the handler is created, and the error names the field"},
		"K86":  {"failure", "success", "a path that parses as an opaque URL is used as a path; the kubelet always fails it, because the URL has no host"},
		"K92":  {"success", "failure", "response headers of more than 64 KiB are rejected; net/http allows 10 MiB"},
		"K94":  {"warning", "success", "host names are compared without regard to case (RFC 3986)"},
		"K112": {"success", "unknown", "an empty host is an error; it does not mean the local machine"},
	}
}

// covers reports whether a row explains the difference of two findings.
func (r handlerRow) covers(kubelet, ours found) bool {
	return (r.kubelet == "" || r.kubelet == kubelet.outcome) && r.sonde == ours.outcome && !kubelet.equal(ours)
}

// handlerCase is an attempt by the kubelet's handler and by Sonde's.
type handlerCase struct {
	name   string // unique
	wanted string // the K number of an intended difference, if there is one
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
	summarise("%d handler cases: %d expected differences, %d unexpected", len(names), wanted, differ.Load())
}

// summarise prints a line of the summary, even without go test -v.
func summarise(format string, args ...any) { fmt.Printf("oracle: "+format+"\n", args...) }

// found is the result of one attempt, and the requests that the server has received.
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

// tried makes an attempt with retries, like the kubelet's runProbeWithRetries (K69).
func tried(attempt func() (kubeprobe.Result, string, error)) (result kubeprobe.Result, output string, err error) {
	for range maxTries {
		if result, output, err = attempt(); err == nil {
			break
		}
	}
	return result, output, err
}

// kubeletFound converts a result of the kubelet's handlers (K70).
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

// agree compares both findings; an intended difference must exist.
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
