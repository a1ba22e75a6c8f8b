package process

import (
	"os"
	"path/filepath"
	"strconv"
	"strings"
	"testing"
	"time"

	"github.com/sonde-probe/sonde/restart"
	"github.com/sonde-probe/sonde/tests/testsync"
	"github.com/sonde-probe/sonde/tests/tier"
)

// counting writes the numbers from 1 on, and the last written one to the file "last".
const counting = `trap 'exit 0' TERM; i=0; while :; do i=$((i+1)); echo number $i; echo $i >last; sleep 0.001; done`

// adoptableTo is adoptable with another configuration of its output.
func adoptableTo(t *testing.T, dir, script string, log *testsync.Buffer, outputs *Outputs, to *Log) *Driver {
	t.Helper()
	c := adoptable(t, dir, script, log).config
	c.Outputs, c.Log = outputs, to
	d, err := New(c)
	if err != nil {
		t.Fatal(err)
	}
	d.output.flushTimeout = testsync.Timeout
	return d
}

func TestALogFileGoesOnWithoutAnEngine(t *testing.T) {
	tier.CI(t)
	dir, log, outputs := t.TempDir(), new(testsync.Buffer), new(Outputs)
	to := &Log{File: filepath.Join(dir, "app.log"), MaxSize: 64 << 10, MaxFiles: 1000}
	last := func() int { n, _ := strconv.Atoi(text(filepath.Join(dir, "last"))); return n }
	await := func(more int) {
		t.Helper()
		before := last()
		testsync.Until(t, "more lines", func() bool { return last() >= before+more })
	}
	first := attend(t, adoptableTo(t, dir, counting, log, outputs, to))
	for range 5 {
		await(50)
		first.leave(t)
		await(50) // without an engine
		first = first.takenOver(t, adoptableTo(t, dir, counting, log, outputs, to))
	}
	first.end <- time.Minute
	testsync.Receive(t, "the end", first.exit)
	written, err := os.ReadFile(to.File)
	if err != nil {
		t.Fatal(err)
	}
	all := strings.TrimSuffix(strings.TrimSuffix(string(written), "Terminated\n"), "\n") // the shell's message about sleep
	lines := strings.Split(all, "\n")
	for i, line := range lines {
		if line != "number "+strconv.Itoa(i+1) {
			t.Fatalf("line %d is %q", i+1, line)
		}
	}
	if len(lines) < last() {
		t.Errorf("%d lines are in the file, of %d", len(lines), last())
	}
	if dropped, _ := outputs.Dropped("web"); dropped != 0 || strings.Contains(log.String(), "dropped") {
		t.Errorf("dropped %d; the log is %s", dropped, log)
	}
}

func TestLinesThatNoEngineReadsAreCounted(t *testing.T) {
	dir, log, outputs := t.TempDir(), new(testsync.Buffer), new(Outputs)
	script := `for i in 1 2 3; do echo early; done; while [ ! -e go ]; do sleep 0.01; done; for i in 1 2 3 4 5; do echo late; done; echo >gone; while :; do sleep 0.05; done`
	first := attend(t, adoptableTo(t, dir, script, log, outputs, nil))
	testsync.Until(t, "the first lines", func() bool { return strings.Count(log.String(), "msg=early") == 3 })
	first.leave(t)
	if err := os.WriteFile(filepath.Join(dir, "go"), nil, 0o600); err != nil {
		t.Fatal(err)
	}
	testsync.Until(t, "the other lines", func() bool { return text(filepath.Join(dir, "gone")) == "" && exists(filepath.Join(dir, "gone")) })
	second := first.takenOver(t, adoptableTo(t, dir, script, log, outputs, nil))
	testsync.Until(t, "the other lines to be logged or dropped", func() bool {
		dropped, _ := outputs.Dropped("web")
		return dropped+uint64(strings.Count(log.String(), "msg=late")) == 5
	})
	if dropped, _ := outputs.Dropped("web"); dropped > 0 && !strings.Contains(log.String(), `msg="output lines dropped while no engine ran"`) {
		t.Errorf("the log is %s", log)
	}
	second.end <- 0
	if exit := testsync.Receive(t, "the end", second.exit); exit.Err == restart.ErrReleased {
		t.Errorf("exit %+v", exit)
	}
}

func exists(path string) bool {
	_, err := os.Stat(path)
	return err == nil
}

func TestAnotherLogIsAnotherProcess(t *testing.T) {
	plain := sh("true")
	filed := plain
	filed.Log = &Log{File: "/var/log/app.log"}
	if plain.digest() == filed.digest() {
		t.Error("an instance with another log goes on")
	}
}
