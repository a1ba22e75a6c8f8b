package guard

import (
	"encoding/json"
	"errors"
	"fmt"
	"os"
	"runtime"
	"syscall"

	"golang.org/x/sys/unix"

	"github.com/sonde-probe/sonde/internal/command"
	"github.com/sonde-probe/sonde/internal/reexec"
)

// A command with limits or a nice value is started by a launcher: another process of this program, which sets them and
// then becomes the command (execve). A guard cannot set them before it forks, since it might not be allowed to revert
// them, nor after the fork, since the command would already be running.

// launcherName is the argv[0] of a launcher.
const launcherName = "sonde-launcher"

// File descriptors of a launcher, after those of the command.
const (
	launcherOrder  = 3 + iota // the launcher reads the Start from it
	launcherResult            // the launcher writes launchReports to it; closed by execve
)

// launchReport is a message of a launcher.
type launchReport struct {
	Ready bool          `json:",omitempty"` // execve is next
	Error string        `json:",omitempty"` // why the command was not started
	Errno syscall.Errno `json:",omitempty"` // the error number of Error
}

// Resources maps names to the resources that can be limited. It is empty on systems without launchers.
var Resources = map[string]Resource{
	"as":      {unix.RLIMIT_AS, true},
	"core":    {unix.RLIMIT_CORE, true},
	"cpu":     {unix.RLIMIT_CPU, false},
	"data":    {unix.RLIMIT_DATA, true},
	"fsize":   {unix.RLIMIT_FSIZE, true},
	"memlock": {unix.RLIMIT_MEMLOCK, true},
	"nofile":  {unix.RLIMIT_NOFILE, false},
	"nproc":   {unix.RLIMIT_NPROC, false},
	"stack":   {unix.RLIMIT_STACK, true},
}

func init() {
	if len(os.Args) == 0 || os.Args[0] != launcherName {
		return
	}
	runtime.LockOSThread() // the nice value and PR_SET_PDEATHSIG belong to a thread
	command.CloseInherited(launcherResult)
	syscall.CloseOnExec(launcherOrder)
	syscall.CloseOnExec(launcherResult)
	reports := json.NewEncoder(os.NewFile(launcherResult, "result"))
	err := becomeCommand(func() error { return reports.Encode(launchReport{Ready: true}) })
	failure := launchReport{Error: err.Error()}
	errors.As(err, &failure.Errno)
	_ = reports.Encode(failure) // an error means that the guard was killed
	os.Exit(1)
}

// launch starts a launcher, and returns when it has become the command of s.
func launch(s Start, attr *syscall.SysProcAttr) (pid int, err error) {
	attr.Credential = nil // the launcher sets the credential after limits that only root may raise
	orderRead, order, err := os.Pipe()
	if err != nil {
		return 0, err
	}
	defer order.Close()
	result, resultWrite, err := os.Pipe()
	if err != nil {
		return 0, errors.Join(err, orderRead.Close())
	}
	defer result.Close()
	pid, err = syscall.ForkExec(reexec.Executable, []string{launcherName}, &syscall.ProcAttr{
		Dir:   "/",
		Env:   reexec.Env("GOMAXPROCS=1", "GOGC=off"),
		Files: []uintptr{0, stdoutEnd, stderrEnd, orderRead.Fd(), resultWrite.Fd()},
		Sys:   attr,
	})
	_, _ = orderRead.Close(), resultWrite.Close()
	if err != nil {
		return 0, os.NewSyscallError("fork/exec", err)
	}
	_ = json.NewEncoder(order).Encode(s) // awaitLaunch returns the error of a launcher that does not read
	if err := awaitLaunch(json.NewDecoder(result)); err != nil {
		_ = syscall.Kill(pid, syscall.SIGKILL)
		_, _ = syscall.Wait4(pid, nil, 0, nil)
		return 0, err
	}
	return pid, nil
}

// errLauncher is the error of launch if the launcher was killed: the command is not at fault.
var errLauncher = launchError{"the process that sets its limits was killed", syscall.EAGAIN}

// awaitLaunch returns nil when a launcher has become the command, or the error that prevented it.
func awaitLaunch(reports *json.Decoder) error {
	ready := false
	for {
		var r launchReport
		switch err := reports.Decode(&r); {
		case err != nil && !ready:
			return errLauncher
		case err != nil:
			return nil
		case r.Error != "":
			return launchError{r.Error, r.Errno}
		}
		ready = true
	}
}

// becomeCommand reads a Start and becomes its command. It returns only on an error.
func becomeCommand(ready func() error) error {
	guard := os.Getppid()
	var s Start
	if err := json.NewDecoder(os.NewFile(launcherOrder, "order")).Decode(&s); err != nil {
		return fmt.Errorf("read what to start: %w", err)
	}
	if s.Nice != nil {
		if err := unix.Setpriority(unix.PRIO_PROCESS, 0, *s.Nice); err != nil {
			return fmt.Errorf("nice cannot be set to %d: %w", *s.Nice, err)
		}
	}
	if err := raiseLimits(s.Rlimits); err != nil {
		return err
	}
	if err := setCredential(s.Plan.Credential); err != nil {
		return err
	}
	if err := unix.Prctl(unix.PR_SET_PDEATHSIG, uintptr(syscall.SIGKILL), 0, 0, 0); err != nil { // a change of the user has cleared it
		return os.NewSyscallError("prctl", err)
	}
	if os.Getppid() != guard {
		return errors.New("its guard has ended")
	}
	if err := os.Chdir(s.Plan.Dir); err != nil {
		return fmt.Errorf("start %s: %w", s.Plan.Path, err)
	}
	if err := ready(); err != nil {
		return err
	}
	makeRoom()
	for _, l := range s.Rlimits {
		if err := unix.Setrlimit(Resources[l.Name].number, &unix.Rlimit{Cur: l.Soft, Max: l.Hard}); err != nil {
			return fmt.Errorf("rlimits: %s cannot be set: %w", l.Name, err)
		}
	}
	return fmt.Errorf("start %s: %w", s.Plan.Path, syscall.Exec(s.Plan.Path, s.Plan.Words, s.Plan.Env))
}

// raiseLimits raises hard limits where a higher one is wanted, which only root may do.
func raiseLimits(limits []Rlimit) error {
	for _, l := range limits {
		var now unix.Rlimit
		if err := unix.Getrlimit(Resources[l.Name].number, &now); err != nil {
			return fmt.Errorf("rlimits: %s: %w", l.Name, err)
		}
		if l.Hard <= now.Max {
			continue
		}
		if err := unix.Setrlimit(Resources[l.Name].number, &unix.Rlimit{Cur: now.Cur, Max: l.Hard}); err != nil {
			return fmt.Errorf("rlimits: %s cannot be raised above %d, the hard limit of the engine: %w", l.Name, now.Max, err)
		}
	}
	return nil
}

// setCredential makes this process run as the given user; nil changes nothing.
func setCredential(c *syscall.Credential) error {
	if c == nil {
		return nil
	}
	if !c.NoSetGroups {
		groups := make([]int, len(c.Groups))
		for i, group := range c.Groups {
			groups[i] = int(group)
		}
		if err := syscall.Setgroups(groups); err != nil {
			return os.NewSyscallError("setgroups", err)
		}
	}
	if err := syscall.Setgid(int(c.Gid)); err != nil {
		return os.NewSyscallError("setgid", err)
	}
	return os.NewSyscallError("setuid", syscall.Setuid(int(c.Uid)))
}

// makeRoom frees memory of this process, so that it needs no more from the kernel between setting its limits and
// execve: if the kernel refused, the Go runtime would exit.
func makeRoom() {
	runtime.KeepAlive(make([]byte, 1<<20))
	runtime.GC()
}
