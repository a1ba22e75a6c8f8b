//go:build linux

// Package gray injects the fifteen faults of docs/gray.md into real servers, each next to a healthy twin, and measures
// how soon sonde reports them. `make gray` runs all of them. The tests need root and a network namespace.
//
//	gray_test.go     the test, and its table
//	rows_test.go     the faults and their configurations
//	servers_test.go  servers that fail
//	network_test.go  names, and networks that drop packets
//	watch_test.go    sonde, and what it shows
package gray

import (
	"flag"
	"fmt"
	"os"
	"slices"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/sonde-probe/sonde/tests/dialtest"
	"github.com/sonde-probe/sonde/tests/faulttest"
	"github.com/sonde-probe/sonde/tests/tier"
)

func TestMain(m *testing.M) {
	flag.Parse()
	os.Exit(faulttest.Main(m))
}

// minVisible is the minimum percentage of looks in which the reason is visible while the fault lasts.
const minVisible = 95

// Each fault is named in time and stays named, and its healthy twin is never in trouble.
func TestPartialFailuresAreNamed(t *testing.T) {
	tier.Needs(t, "ip", "nft", "redis-server")
	if os.Geteuid() != 0 {
		t.Skip("needs root, for network namespaces")
	}
	healthy, faulty := tier.Pick(5*time.Second, 5*time.Second, 30*time.Second), tier.Pick(15*time.Second, 15*time.Second, 90*time.Second)
	atLength := tier.IsLong()
	silence := useNames(t)
	root := dialtest.NewAuthority(t).Intermediate(t, "root", 365*24*time.Hour) // it expires later than the certificate of the fault
	rows := slices.DeleteFunc(allRows(root, silence), func(r *row) bool { return !r.short && !atLength })
	w := newWatch(t, rows, root)
	w.look(t, healthy)
	var starting sync.WaitGroup
	for _, r := range rows {
		starting.Go(func() {
			r.fail()
			r.result.begin(time.Now())
		})
	}
	w.look(t, faulty)
	starting.Wait()
	fmt.Print(table(rows))
	for _, r := range rows {
		r.check(t, atLength)
	}
}

// check fails the test if the fault was not named, or was named falsely; at length, also if it was named too late or not visible
// enough: .ci/run has other work meanwhile.
func (r *row) check(t *testing.T, atLength bool) {
	s := &r.result
	switch {
	case s.named.IsZero():
		t.Errorf("%d, %s: not named in %v; the last cause: %s", r.number, r.what, time.Since(s.began).Round(time.Second), s.other)
	case atLength && s.delay() > r.within:
		t.Errorf("%d, %s: named after %v, want %v at most", r.number, r.what, s.delay(), r.within)
	case atLength && s.visible() < minVisible:
		t.Errorf("%d, %s: the reason was visible in %.1f %% of looks, want %d %%; the last other cause: %s", r.number, r.what, s.visible(), minVisible, s.other)
	}
	if s.early != "" {
		t.Errorf("%d, %s: in trouble before the fault: %s", r.number, r.what, s.early)
	}
	if s.falseAlarms > 0 {
		t.Errorf("%d, %s: %d false alarms of the healthy twin, the last: %s", r.number, r.what, s.falseAlarms, s.twin)
	}
}

// table returns the results in the format of docs/gray.md.
func table(rows []*row) string {
	var b strings.Builder
	b.WriteString("| | what is wrong | shown after | visible | false alarms of the twin | what is shown |\n|---|---|---|---|---|---|\n")
	for _, r := range rows {
		s := &r.result
		after := "never"
		if !s.named.IsZero() {
			after = fmt.Sprintf("%.1fs", s.delay().Seconds())
		}
		fmt.Fprintf(&b, "| %d | %s | %s | %.0f %% | %d | %s |\n", r.number, r.what, after, s.visible(), s.falseAlarms, strings.ReplaceAll(s.shown, "|", `\|`))
	}
	return b.String()
}
