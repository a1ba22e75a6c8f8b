package process

import (
	"bytes"
	"errors"
	"log/slog"
	"os"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"github.com/sonde-probe/sonde/probe"
	"github.com/sonde-probe/sonde/tests/testsync"
	"github.com/sonde-probe/sonde/tests/tier"
)

func TestWrongLogsAreNamed(t *testing.T) {
	for name, c := range map[string]struct {
		log   Log
		field string
	}{
		"nothing":          {Log{}, "log"},
		"both":             {Log{File: "/x", Stdout: true}, "log.stdout"},
		"a relative one":   {Log{File: "x.log"}, "log.file"},
		"accounts":         {Log{File: "/etc/passwd"}, "log.file"},
		"a program":        {Log{File: "/usr/bin/env"}, "log.file"},
		"a small size":     {Log{File: "/x", MaxSize: 64<<10 - 1}, "log.max_size"},
		"a size of stdout": {Log{Stdout: true, MaxSize: 1 << 20}, "log.max_size"},
		"files of stdout":  {Log{Stdout: true, MaxFiles: 3}, "log.max_files"},
		"no files":         {Log{File: "/x", MaxFiles: -1}, "log.max_files"},
		"too many files":   {Log{File: "/x", MaxFiles: 1001}, "log.max_files"},
	} {
		config := sh("true")
		config.Log = &c.log
		var field *probe.FieldError
		if err := config.Check(); !errors.As(err, &field) || field.Field != c.field {
			t.Errorf("%s: Check() = %v, want an error about %s", name, err, c.field)
		}
	}
}

// Other tests set longer timeouts.
func TestADriverHasTheTimeoutsOfTheConstants(t *testing.T) {
	if d := newDriver(Config{}); d.output.flushTimeout != flushTimeout || d.killTimeout != killTimeout {
		t.Errorf("flush: %v, kill: %v", d.output.flushTimeout, d.killTimeout)
	}
}

func TestOutputIsAppendedToALogFile(t *testing.T) {
	path := filepath.Join(t.TempDir(), "app.log")
	if err := os.WriteFile(path, []byte("before\n"), 0o600); err != nil {
		t.Fatal(err)
	}
	log := new(testsync.Buffer)
	for range 2 {
		c := sh(`echo one; echo two >&2; printf '\033[1mas it is'; echo; printf unfinished`)
		c.Log, c.Logger = &Log{File: path}, slog.New(slog.NewTextHandler(log, nil))
		d := driver(t, c)
		d.output.flushTimeout = testsync.Timeout
		if exit := run(t, d).exit(t); !strings.Contains(exit.Output, "as it is") {
			t.Errorf("the end of the output is %q", exit.Output)
		}
	}
	text, err := os.ReadFile(path)
	if err != nil {
		t.Fatal(err)
	}
	for line, want := range map[string]int{"before\n": 1, "one\n": 2, "two\n": 2, "\033[1mas it is\n": 2, "unfinished": 2} {
		if got := bytes.Count(text, []byte(line)); got != want {
			t.Errorf("%q is %d times in the file, want %d", line, got, want)
		}
	}
	if got := log.String(); strings.Contains(got, "one") {
		t.Errorf("the engine's log has lines of the file: %s", got)
	}
}

func TestTheLastTotalOfDroppedLinesIsLogged(t *testing.T) {
	log := new(testsync.Buffer)
	o := newOutput(Config{Log: &Log{File: filepath.Join(t.TempDir(), "app.log")}, Logger: slog.New(slog.NewTextHandler(log, nil))})
	o.of.dropped.Add(3)
	o.notes.note(false)
	o.of.dropped.Add(4) // within the noteInterval
	o.notes.note(false)
	o.flush()
	o.flush()
	if got := log.String(); strings.Count(got, "lines dropped") != 2 || !strings.Contains(got, "total=7") {
		t.Errorf("the log does not have the totals 3 and 7: %s", got)
	}
}

// spammer writes lines as fast as it can: millions in a second.
const spammer = `yes 0123456789 | head -n $LINES; echo done >&2`

func TestAFastProcessLosesOnlyItsOwnLines(t *testing.T) {
	tier.Slow(t)
	const lines = 600_000
	outputs, log := new(Outputs), new(testsync.Buffer)
	logger := slog.New(slog.NewTextHandler(log, nil))
	calm, err := New(Config{Target: "calm", Command: []string{"/bin/sh", "-c", `for i in 1 2 3 4 5; do echo calm-$i; sleep 0.05; done`}, Logger: logger, Outputs: outputs})
	if err != nil {
		t.Fatal(err)
	}
	other := run(t, calm)
	c := sh(strings.ReplaceAll(spammer, "$LINES", "600000"))
	c.Logger, c.Outputs, c.LinesPerSecond = logger, outputs, 50
	if exit := begin(t, c).exit(t); exit.Code != 0 || exit.Err != nil {
		t.Errorf("it exited with %+v", exit)
	}
	other.exit(t)
	text := log.String()
	logged := strings.Count(text, "msg=0123456789 ")
	if dropped, _ := outputs.Dropped("test"); uint64(logged)+dropped != lines || logged == 0 || logged > lines/100 {
		t.Errorf("%d lines are logged and %d dropped, of %d", logged, dropped, lines)
	}
	if dropped, isProcess := outputs.Dropped("calm"); dropped != 0 || !isProcess || strings.Count(text, "msg=calm-") != 5 {
		t.Errorf("the other process has lost %d lines", dropped)
	}
	outputs.Keep(func(target string) bool { return target == "calm" })
	_, isKept := outputs.Dropped("calm")
	if _, isProcess := outputs.Dropped("test"); isProcess || !isKept {
		t.Errorf("the targets are wrong that are kept: %v, %v", isProcess, isKept)
	}
}

func TestAFastProcessFillsItsLogFilesOnly(t *testing.T) {
	tier.Slow(t)
	dir := t.TempDir()
	path, rounds := filepath.Join(dir, "app.log"), filepath.Join(dir, "rounds")
	outputs := new(Outputs)
	c := sh("until test -e '" + path + ".2'; do echo >>'" + rounds + "'; " + strings.ReplaceAll(spammer, "$LINES", "600000") + "; done")
	c.Outputs, c.Log = outputs, &Log{File: path, MaxSize: 1 << 20, MaxFiles: 100}
	d := driver(t, c)
	d.output.flushTimeout = testsync.Timeout
	run(t, d).exit(t)
	begun, err := os.ReadFile(rounds)
	if err != nil {
		t.Fatal(err)
	}
	lines := 600_001 * uint64(len(begun)) // with the last one on the other stream
	files, err := filepath.Glob(path + "*")
	if err != nil {
		t.Fatal(err)
	}
	written := 0
	for _, file := range files {
		text, err := os.ReadFile(file)
		if err != nil || len(text) > 1<<20 {
			t.Errorf("%s has %d bytes: %v", file, len(text), err)
		}
		written += bytes.Count(text, []byte("\n"))
	}
	if dropped, _ := outputs.Dropped("test"); uint64(written)+dropped != lines || len(files) < 3 {
		t.Errorf("%d lines are in %d files and %d dropped, of %d", written, len(files), dropped, lines)
	}
}

func TestAProcessRunsWhoseLogFileCannotBeWritten(t *testing.T) {
	tier.Slow(t)
	outputs, log := new(Outputs), new(testsync.Buffer)
	c := sh(`i=0; while [ $i -lt 100 ]; do echo line; i=$((i+1)); done; exit 3`)
	c.Outputs, c.Logger = outputs, slog.New(slog.NewTextHandler(log, nil))
	c.Log = &Log{File: filepath.Join(t.TempDir(), "missing", "app.log")}
	begun := time.Now()
	if exit := begin(t, c).exit(t); exit.Code != 3 {
		t.Errorf("it exited with %+v", exit)
	}
	if took := time.Since(begun); took > testsync.Timeout {
		t.Errorf("it took %v", took)
	}
	if dropped, _ := outputs.Dropped("test"); dropped != 100 {
		t.Errorf("%d lines are dropped, of 100", dropped)
	}
	for _, want := range []string{"log file of the process cannot be written, trying again", "no such file or directory", "lines dropped"} {
		if !strings.Contains(log.String(), want) {
			t.Errorf("the log lacks %q: %s", want, log.String())
		}
	}
}
