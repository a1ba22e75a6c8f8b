//go:build linux

package main

import (
	"context"
	"encoding/json"
	"fmt"
	"io"
	"net"
	"net/http"
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/sonde-probe/sonde/tests/tier"
)

// TestMain runs a role if the arguments name one: the rows start this program again, and in a test this program is the test.
func TestMain(m *testing.M) {
	if len(os.Args) > 1 && roles()[os.Args[1]] != nil {
		if err := run(context.Background(), os.Args[1:]); err != nil {
			fmt.Fprintln(os.Stderr, err)
			os.Exit(1)
		}
		os.Exit(0)
	}
	os.Setenv("GORACE", "atexit_sleep_ms=0 "+os.Getenv("GORACE")) // otherwise each role would take a second to exit
	os.Exit(m.Run())
}

// quick returns options with which a row takes a fraction of a second; the figures mean nothing.
func quick(t *testing.T, row string) options {
	t.Helper()
	o, err := parse([]string{
		"-rows", row, "-rounds", "1", "-rate", "100", "-window", "100ms", "-warmup", "100ms", "-million", "200",
		"-lap", "200ms", "-overload", "200", "-targets", "100", "-commands", "3", "-instances", "3", "-hanging", "10", "-once",
		"-kubelet", filepath.Join(t.TempDir(), "none"),
	})
	if err != nil {
		t.Fatal(err)
	}
	o.period, o.timeout = 100*time.Millisecond, 50*time.Millisecond
	return o
}

const (
	// noKubelet is the error in the rows of the kubelet, whose program does not exist here.
	noKubelet = "none: no such file"

	// notBuilt is the error in the rows of plugins that were not built.
	notBuilt = "is not built: run make"
)

// usual are the rows that make test measures.
var usual = []string{"allocations", "apply"}

func TestEachRowIsMeasured(t *testing.T) {
	tier.Slow(t)
	for _, name := range rowNames() {
		t.Run(name, func(t *testing.T) {
			if !slices.Contains(usual, name) {
				tier.Long(t)
			}
			if strings.HasSuffix(name, "-haproxy") {
				tier.Needs(t, "haproxy")
			}
			patiently(t, name)
		})
	}
}

// patiently measures a row, repeatedly for longer and with more probes if a figure makes no sense: on a machine that is busy with
// other tests, a probe may not run within a tenth of a second, and the runtime's own memory exceeds that of a few probes.
func patiently(t *testing.T, name string) {
	t.Helper()
	var problems []string
	for _, factor := range []int{1, 5, 25, 100} {
		o := quick(t, name)
		o.window *= time.Duration(factor)
		o.million *= factor
		lines, err := measure(t.Context(), o)
		if err != nil {
			t.Fatal(err)
		}
		if problems = problemsOf(name, lines); len(problems) == 0 {
			return
		}
	}
	t.Error(strings.Join(problems, "\n"))
}

// problemsOf returns the lines of a row that lack a figure. The lines of the kubelet, whose program does not exist here, must have
// the error.
func problemsOf(row string, lines []line) (problems []string) {
	if len(lines) == 0 {
		problems = append(problems, "it has no line")
	}
	for _, l := range lines {
		switch {
		case l.Row != row:
			problems = append(problems, fmt.Sprintf("a line of row %s says that it is of %q", row, l.Row))
		case strings.HasSuffix(row, "-kubelet"):
			if !strings.Contains(l.Missing, noKubelet) {
				problems = append(problems, fmt.Sprintf("without a kubelet: %+v", l))
			}
		case strings.Contains(l.Missing, notBuilt):
		case l.Missing != "":
			problems = append(problems, "it was not measured: "+l.Missing)
		case l.Measured < 0 && !strings.HasPrefix(row, "plugin-"), l.Measured == 0 && l.Goal > 0 && len(l.Rounds) > 0 && l.Unit != "":
			problems = append(problems, fmt.Sprintf("%s measured %v", l.What, l.Measured))
		}
	}
	return problems
}

func TestUnknownRowIsNamed(t *testing.T) {
	_, err := parse([]string{"-rows", "tcp-haproxy,tpc"})
	if err == nil || !strings.Contains(err.Error(), `"tpc"`) || !strings.Contains(err.Error(), "tcp-kubelet") {
		t.Errorf("got %v", err)
	}
}

func TestTargetAnswersAtEveryAddress(t *testing.T) {
	b := newBench(t)
	for _, i := range []int{0, 255, 65536, 1_000_000} {
		response, err := http.Get(fmt.Sprintf("http://%s:%d/", address(i), b.target))
		if err != nil {
			t.Fatal(err)
		}
		body, err := io.ReadAll(response.Body)
		if string(body) != "ok" || err != nil || response.StatusCode != 200 {
			t.Errorf("%s answered %d %q, %v", address(i), response.StatusCode, body, err)
		}
		response.Body.Close()
	}
}

// newBench returns a bench with a target.
func newBench(t *testing.T) *bench {
	t.Helper()
	b := &bench{options: quick(t, ""), self: os.Args[0], dir: t.TempDir()}
	var at place
	target, err := b.startRole(t.Context(), &at, "target")
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(target.end)
	b.target = at.Port
	return b
}

func TestBlackHoleNeitherAcceptsNorRefuses(t *testing.T) {
	hole, err := newBlackHole()
	if err != nil {
		t.Fatal(err)
	}
	defer hole.close()
	conn, err := net.DialTimeout("tcp", fmt.Sprintf("127.1.2.3:%d", hole.port), 50*time.Millisecond)
	if err == nil {
		conn.Close()
	}
	if timeout, ok := err.(net.Error); !ok || !timeout.Timeout() {
		t.Errorf("dialling a black hole gave %v, want a timeout", err)
	}
}

func TestCPUAndMemoryOfAProcessAreRead(t *testing.T) {
	pid := os.Getpid()
	before, err := cpu(pid)
	if err != nil {
		t.Fatal(err)
	}
	now, end := before, time.Now().Add(10*time.Second)
	for now < before+20*time.Millisecond && time.Now().Before(end) {
		if now, err = cpu(pid); err != nil {
			t.Fatal(err)
		}
	}
	own, err := ownCPU()
	if err != nil {
		t.Fatal(err)
	}
	if now < before+20*time.Millisecond || own < 20*time.Millisecond || own > time.Hour {
		t.Errorf("after reading it for long the cpu time is %v more, and %v in all", now-before, own)
	}
	rss, err := resident(pid)
	most, err2 := peak(pid)
	if err != nil || err2 != nil || rss < 1<<20 || most < rss/2 {
		t.Errorf("%v bytes, at most %v: %v, %v", rss, most, err, err2)
	}
}

func TestConnectionsAreCounted(t *testing.T) {
	b := newBench(t)
	before, err := opened()
	if err != nil {
		t.Fatal(err)
	}
	const n = 10
	for range n {
		conn, err := net.Dial("tcp", fmt.Sprintf("127.0.0.1:%d", b.target))
		if err != nil {
			t.Fatal(err)
		}
		conn.Close()
	}
	after, err := opened()
	if err != nil || after < before+n {
		t.Errorf("%d connections were counted of %d: %v", after-before, n, err)
	}
}

func TestConnectionsOfOtherProcessesAreDetected(t *testing.T) {
	b := &bench{options: options{rate: 100, window: 2 * time.Second}}
	for _, c := range []struct {
		made   uint64
		others bool
		wrong  bool
	}{{49, false, true}, {150, false, false}, {210, false, false}, {300, true, false}} {
		remark, err := b.plausible(c.made)
		if strings.Contains(remark, "INVALID") != c.others || (err != nil) != c.wrong {
			t.Errorf("%d attempts of 200: %q, %v", c.made, remark, err)
		}
	}
}

func TestProcessThatExitsAtOnceIsAnError(t *testing.T) {
	var ready counts
	_, err := start(t.Context(), "true", exec.Command(program), &ready)
	if err == nil || !strings.Contains(err.Error(), "true: no answer") {
		t.Errorf("got %v", err)
	}
}

func TestLinesAreJSON(t *testing.T) {
	var out strings.Builder
	in := []line{{Row: "tcp", What: "a", Unit: "×", Goal: 1, Measured: 2, Rounds: []float64{2}}, {Row: "exec", Missing: "no gcc"}}
	if err := writeJSON(&out, in); err != nil {
		t.Fatal(err)
	}
	var back []line
	if err := json.Unmarshal([]byte(out.String()), &back); err != nil || len(back) != 2 || back[0].Measured != 2 || back[1].Missing != "no gcc" {
		t.Errorf("%v: %s", err, out.String())
	}
}
