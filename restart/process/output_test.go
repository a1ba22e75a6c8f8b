package process

import (
	"context"
	"fmt"
	"log/slog"
	"os"
	"path/filepath"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"testing/synctest"
	"time"

	"github.com/sonde-probe/sonde/internal/command"
	"github.com/sonde-probe/sonde/tests/testsync"
	"github.com/sonde-probe/sonde/tests/tier"
)

// said is a log that stores records as lines of level, text and attributes.
type said struct {
	mu    sync.Mutex
	lines []string
}

func (s *said) Enabled(context.Context, slog.Level) bool { return true }
func (s *said) WithAttrs([]slog.Attr) slog.Handler       { return s }
func (s *said) WithGroup(string) slog.Handler            { return s }

func (s *said) Handle(_ context.Context, r slog.Record) error {
	text := r.Level.String() + " " + r.Message
	r.Attrs(func(a slog.Attr) bool { text += " " + a.String(); return true })
	s.mu.Lock()
	defer s.mu.Unlock()
	s.lines = append(s.lines, text)
	return nil
}

// all returns the records so far, with a bar between them.
func (s *said) all() string {
	s.mu.Lock()
	defer s.mu.Unlock()
	return strings.Join(s.lines, "|")
}

func lineStream(perSecond int) (*lineLogger, *said) {
	s := new(said)
	return &lineLogger{log: slog.New(s), tail: &command.Output{Max: maxOutput, Last: true}, perSecond: perSecond, total: new(atomic.Uint64)}, s
}

// A prompt has no line end, and the rest of its line comes late.
func TestTheRestOfALineThatWasLoggedUnfinishedIsARecord(t *testing.T) {
	l, log := lineStream(10)
	for _, pieces := range [][]string{{"prompt: ", "\n"}, {"half", " and half\nnext\n"}} {
		for _, piece := range pieces {
			_, _ = l.Write([]byte(piece))
			if l.Unfinished() {
				l.EndLine()
			}
		}
	}
	if got, want := log.all(), "INFO prompt:|INFO half|INFO  and half|INFO next"; got != want {
		t.Errorf("got %q, want %q", got, want)
	}
}

func TestAnUnfinishedLineIsLoggedWhileTheProcessRuns(t *testing.T) {
	tier.Slow(t)
	for name, to := range map[string]*Log{"log": nil, "file": {File: filepath.Join(t.TempDir(), "log")}} {
		t.Run(name, func(t *testing.T) {
			l := begin(t, Config{Command: []string{"/bin/sh", "-c", `printf 'password: '; exec sleep 600`}, Log: to})
			defer l.cancel()
			testsync.Until(t, "the prompt", func() bool {
				text := l.log.String()
				if to != nil {
					file, _ := os.ReadFile(to.File)
					text = string(file)
				}
				return strings.Contains(text, "password: ")
			})
		})
	}
}

func TestLinesAreLoggedOneByOne(t *testing.T) {
	l, log := lineStream(10)
	for _, piece := range []string{"one\ntw", "o", "\n\nbell\a\r\nlast"} {
		if n, err := l.Write([]byte(piece)); n != len(piece) || err != nil {
			t.Errorf("Write(%q) = %d, %v", piece, n, err)
		}
	}
	l.end()
	want := "INFO one|INFO two|INFO |INFO bell�|INFO last"
	if got := log.all(); got != want {
		t.Errorf("got %q, want %q", got, want)
	}
	if got := l.tail.String(); got != "one\ntwo\n\nbell\a\r\nlast" {
		t.Errorf("last words %q", got)
	}
}

func TestLongLineIsTruncatedAndLogged(t *testing.T) {
	l, log := lineStream(10)
	for range 100 {
		_, _ = l.Write([]byte(strings.Repeat("x", 1000)))
	}
	_, _ = l.Write([]byte("\nnext\n"))
	want := fmt.Sprintf("INFO %s truncated_bytes=%d", strings.Repeat("x", maxLine), 100_000-maxLine)
	if got := log.all(); got != want+"|INFO next" {
		t.Errorf("got %d bytes of records", len(got))
	}
	if cap(l.line) > 2*maxLine {
		t.Errorf("keeps %d bytes", cap(l.line))
	}
}

func TestDroppedLinesAreCountedAndLogged(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		l, log := lineStream(2)
		_, _ = l.Write([]byte(strings.Repeat("x\n", 10)))
		if got := log.all(); got != "INFO x|INFO x" {
			t.Errorf("in the first second: %q", got)
		}
		time.Sleep(time.Second)
		_, _ = l.Write([]byte("y\ny\ny\n"))
		l.end()
		want := "INFO x|INFO x|WARN output too fast, lines dropped dropped=8|INFO y|INFO y|WARN output too fast, lines dropped dropped=1"
		if got := log.all(); got != want {
			t.Errorf("got %q, want %q", got, want)
		}
	})
}

func TestLinesNameTargetAndStream(t *testing.T) {
	l := begin(t, sh(`echo one; echo two >&2`))
	l.exit(t)
	for _, want := range []string{"msg=one target=test stream=stdout", "msg=two target=test stream=stderr"} {
		if !strings.Contains(l.log.String(), want) {
			t.Errorf("the log lacks %q:\n%s", want, l.log)
		}
	}
}

func TestOutputIsTheLastFourKiB(t *testing.T) {
	exit := begin(t, sh(`i=0; while [ $i -lt 2000 ]; do echo line $i; i=$((i+1)); done`)).exit(t)
	if n := len(exit.Output); n > maxOutput || n < maxOutput-10 || !strings.HasSuffix(exit.Output, "line 1999") {
		t.Errorf("%d bytes ending %q", n, exit.Output[max(0, n-20):])
	}
}

func TestAFloodOfOutputDoesNotStopTheCommand(t *testing.T) {
	tier.Slow(t)
	l := begin(t, sh(`head -c 5000000 /dev/zero | tr '\0' '\n'; echo done >&2; exit 4`))
	if exit := l.exit(t); exit.Code != 4 || len(l.log.String()) > 1<<20 {
		t.Errorf("code %d and %d bytes of log", exit.Code, len(l.log.String()))
	}
}
