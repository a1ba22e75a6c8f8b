package logfile

import (
	"os"
	"strings"
	"testing"
	"time"

	"github.com/sonde-probe/sonde/tests/testsync"
)

// lined is a Liner that shows each line followed by a bar.
type lined struct {
	text testsync.Buffer
	last string
}

func (l *lined) Write(p []byte) (int, error) {
	l.last += string(p)
	for {
		line, rest, found := strings.Cut(l.last, "\n")
		if !found {
			return len(p), nil
		}
		_, _ = l.text.Write([]byte(line + "|"))
		l.last = rest
	}
}

func (l *lined) Unfinished() bool { return l.last != "" }

func (l *lined) EndLine() { _, _ = l.Write([]byte("…\n")) }

func TestAnUnfinishedLineIsNotKeptForEver(t *testing.T) {
	defer func(before time.Duration) { unfinishedFor = before }(unfinishedFor)
	unfinishedFor = 10 * time.Millisecond
	r, w, err := os.Pipe()
	if err != nil {
		t.Fatal(err)
	}
	defer r.Close()
	s, to, ended := Source{File: r}, new(lined), make(chan bool)
	begin := func() {
		go func() {
			s.Copy(to)
			ended <- true
		}()
	}
	say := func(text, want string) {
		t.Helper()
		if _, err := w.WriteString(text); err != nil {
			t.Fatal(err)
		}
		testsync.Until(t, want, func() bool { return to.text.String() == want })
	}
	begin()
	say("one\npassword: ", "one|password: …|")
	say("\ntwo\n", "one|password: …||two|")
	s.Stop(0)
	testsync.Receive(t, "the end of Copy", ended)
	s.Resume()
	begin()
	say("three\nfour", "one|password: …||two|three|four…|")
	w.Close()
	testsync.Receive(t, "the end of Copy", ended)
}

// Stop takes effect in whatever order the calls are made.
func TestStopEndsACopyAtAnyTime(t *testing.T) {
	defer func(before time.Duration) { unfinishedFor = before }(unfinishedFor)
	unfinishedFor = 100 * time.Microsecond
	for i := range 200 {
		r, w, err := os.Pipe()
		if err != nil {
			t.Fatal(err)
		}
		s, ended := Source{File: r}, make(chan bool)
		go func() {
			s.Copy(new(lined))
			ended <- true
		}()
		_, _ = w.WriteString("unfinished")
		time.Sleep(time.Duration(i%20) * 20 * time.Microsecond)
		s.Stop(time.Duration(i%2) * time.Millisecond)
		testsync.Receive(t, "the end of Copy", ended)
		r.Close()
		w.Close()
	}
}
