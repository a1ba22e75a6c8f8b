package command

import (
	"os/exec"
	"syscall"
	"testing"

	"github.com/sonde-probe/sonde/tests/testsync"
)

// Three processes, each with two children that sleep, in a row.
func TestTheDescendantsThatAreHeldAreBoundedInAll(t *testing.T) {
	leader := exec.Command("/bin/sh", "-c", `
		sleep 60 & sleep 60 &
		sh -c 'sleep 60 & sleep 60 & sh -c "sleep 60 & sleep 60 & wait"; wait' &
		wait`)
	leader.SysProcAttr = &syscall.SysProcAttr{Setpgid: true}
	if err := leader.Start(); err != nil {
		t.Fatal(err)
	}
	defer func() {
		_ = syscall.Kill(-leader.Process.Pid, syscall.SIGKILL)
		_ = leader.Wait()
	}()
	hold := func(limit int) (held, room int) {
		room = limit
		all := holdDescendants(leader.Process.Pid, &room)
		for _, pidfd := range all {
			closeFD(pidfd)
		}
		return len(all), room
	}
	testsync.Until(t, "the eight descendants", func() bool { held, _ := hold(100); return held == 8 })
	for limit := range 10 {
		held, room := hold(limit)
		if want := min(limit, 8); held != want || room != limit-want {
			t.Errorf("with room for %d it holds %d, and leaves %d", limit, held, room)
		}
	}
}
