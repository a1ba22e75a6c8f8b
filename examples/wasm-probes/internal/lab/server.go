package lab

import (
	"bytes"
	"cmp"
	"os/exec"
	"path/filepath"
	"strings"
	"syscall"
	"testing"
	"time"

	"github.com/sonde-probe/sonde/guest"
	"github.com/sonde-probe/sonde/tests/testsync"
	"github.com/sonde-probe/sonde/tests/tier"
)

// Server is a real server, such as redis-server, in a process that is killed when the test ends.
type Server struct {
	Name string   // the program: a name on PATH, or a path
	Args []string // arguments of the program
	Dir  string   // working directory
	User *syscall.Credential
	End  syscall.Signal // signal that Kill sends; default SIGKILL

	t      testing.TB
	cmd    *exec.Cmd
	output bytes.Buffer
}

// Start starts a server. If the program is a name on PATH, the calling test runs in .ci/run, not in make test.
func Start(t testing.TB, s *Server) *Server {
	t.Helper()
	if filepath.Base(s.Name) == s.Name {
		tier.Needs(t, s.Name)
	}
	s.t = t
	s.Restart()
	t.Cleanup(func() {
		s.Kill()
		if t.Failed() {
			t.Logf("%s said:\n%s", s.Name, s.output.Bytes())
		}
	})
	return s
}

// Restart starts the server again after Kill. It returns before the server is ready.
func (s *Server) Restart() {
	s.t.Helper()
	s.cmd = exec.Command(s.Name, s.Args...)
	s.cmd.Dir, s.cmd.Stdout, s.cmd.Stderr = s.Dir, &s.output, &s.output
	s.cmd.SysProcAttr = &syscall.SysProcAttr{Credential: s.User, Pdeathsig: syscall.SIGKILL, Setpgid: true}
	if err := s.cmd.Start(); err != nil {
		s.t.Fatal(err)
	}
}

// Kill stops the server and its child processes.
func (s *Server) Kill() {
	if s.cmd == nil {
		return
	}
	s.signal(cmp.Or(s.End, syscall.SIGKILL))
	s.signal(syscall.SIGCONT) // a frozen process does not handle signals
	group := -s.cmd.Process.Pid
	last := time.AfterFunc(killAfter, func() { _ = syscall.Kill(group, syscall.SIGKILL) })
	defer last.Stop()
	_ = s.cmd.Wait() // the error only says that it was killed
	s.cmd = nil
}

// killAfter is the time that a server may take to exit after its signal.
const killAfter = 10 * time.Second

// Freeze stops the server's processes with SIGSTOP, and returns when they have stopped. Connections
// stay open.
func (s *Server) Freeze() {
	s.t.Helper()
	s.signal(syscall.SIGSTOP)
	var status syscall.WaitStatus
	if _, err := syscall.Wait4(s.cmd.Process.Pid, &status, syscall.WUNTRACED, nil); err != nil || !status.Stopped() {
		s.t.Fatalf("%s does not stop: %v, %#x", s.Name, err, status)
	}
}

// Thaw continues a frozen server.
func (s *Server) Thaw() { s.signal(syscall.SIGCONT) }

func (s *Server) signal(number syscall.Signal) {
	s.t.Helper()
	if err := syscall.Kill(-s.cmd.Process.Pid, number); err != nil {
		s.t.Errorf("%s: %v: %v", s.Name, number, err)
	}
}

// Timeout is the timeout of attempts that should succeed.
const Timeout = testsync.Timeout

// Until makes attempts until one has the wanted outcome.
func Until(t testing.TB, a Attempt, want guest.Outcome) (r guest.Result) {
	t.Helper()
	defer func() {
		if r.Outcome != want {
			t.Logf("there is still %+v", r)
		}
	}()
	testsync.Until(t, want.String(), func() bool {
		r = a(Timeout)
		return r.Outcome == want
	})
	return r
}

// Expect makes an attempt and checks its outcome and reason.
func Expect(t testing.TB, a Attempt, want guest.Outcome, reason string) guest.Result {
	t.Helper()
	return expect(t, a(Timeout), want, reason)
}

// TimesOut makes an attempt that ends at its timeout, and checks its reason. If a busy machine reached the
// timeout too early for that reason, TimesOut repeats the attempt with a longer timeout.
func TimesOut(t testing.TB, a Attempt, timeout time.Duration, reason string) guest.Result {
	t.Helper()
	var r guest.Result
	testsync.Longer(t, reason, timeout, testsync.Timeout, func(timeout time.Duration) bool {
		r = a(timeout)
		return r.Reason == reason || !MayBeEarly(r.Outcome == guest.Unknown, r.Reason)
	})
	return expect(t, r, guest.Failure, reason)
}

// MayBeEarly reports whether an attempt on a busy machine may have ended at its timeout before it could get its reason.
// On a busy machine, a plugin that does not end in time has the reason plugin.busy, not plugin.timeout.
func MayBeEarly(isUnknown bool, reason string) bool {
	return isUnknown || reason != "plugin.timeout" && strings.HasSuffix(reason, ".timeout")
}

func expect(t testing.TB, r guest.Result, want guest.Outcome, reason string) guest.Result {
	t.Helper()
	if r.Outcome != want || r.Reason != reason {
		t.Errorf("got %v, %q: %s; want %v, %q", r.Outcome, r.Reason, r.Detail, want, reason)
	}
	return r
}

// Turns freezes, continues, kills and restarts a server, and checks the results of attempts in each
// state.
func (s *Server) Turns(t testing.TB, a Attempt) {
	t.Helper()
	s.TurnsOver(t, "tcp", a)
}

// TurnsOver is like Turns, for a server on a given network, tcp or udp.
func (s *Server) TurnsOver(t testing.TB, network string, a Attempt) {
	t.Helper()
	Until(t, a, guest.Success)
	s.Freeze()
	TimesOut(t, a, 300*time.Millisecond, network+".timeout")
	s.Thaw()
	Until(t, a, guest.Success)
	s.Kill()
	Expect(t, a, guest.Failure, network+".refused")
	s.Restart()
	Until(t, a, guest.Success)
}
