package command

import (
	"context"
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"strconv"
	"strings"
	"syscall"
	"testing"

	"github.com/sonde-probe/sonde/internal/shortage"
	"github.com/sonde-probe/sonde/tests/testsync"
)

// leaving has shell commands that start "$1" outside the process group of the script, by what they create.
var leaving = map[string]string{
	"a group":                 `timeout 600 "$1" &`,
	"a session":               `setsid "$1" &`,
	"a daemon":                `(setsid "$1" &)`,
	"a daemon of a daemon":    `setsid sh -c 'setsid sh -c "setsid \"$0\" & exit" "$0" & exit' "$1"`,
	"without files or names":  `(env -i /usr/bin/setsid "$1" </dev/null >/dev/null 2>&1 3>&- &)`,
	"one that has its limits": `(ulimit -Sn 20; setsid "$1" &)`,
}

// leavingScript returns a command that starts a sleeping process with the shell command leave, and then runs the shell command
// then. The process writes its ID to the file pid.
func leavingScript(t *testing.T, leave, then string) (p Plan, pid string) {
	t.Helper()
	if _, err := exec.LookPath("setsid"); err != nil {
		t.Skip("the tool setsid is missing")
	}
	dir := t.TempDir()
	pid = filepath.Join(dir, "pid")
	sleeper, text := filepath.Join(dir, "sleeper"), "#!/bin/sh\necho $$ >'"+pid+"'\nexec sleep 600\n"
	if err := os.WriteFile(sleeper, []byte(text), 0o755); err != nil {
		t.Fatal(err)
	}
	all := leave + "\nuntil [ -s '" + pid + "' ]; do sleep 0.01; done\n" + then
	return planOf(t, Command{Words: []string{"/bin/sh", "-c", Literal(all), "sh", sleeper}}), pid
}

// readPid waits for the process ID in a file.
func readPid(t *testing.T, file string) (pid int) {
	t.Helper()
	testsync.Until(t, "a process ID", func() bool {
		text, _ := os.ReadFile(file)
		var err error
		pid, err = strconv.Atoi(strings.TrimSuffix(string(text), "\n"))
		return err == nil && strings.HasSuffix(string(text), "\n")
	})
	return pid
}

func isAlive(pid int) bool { return syscall.Kill(pid, 0) == nil }

func awaitDeath(t *testing.T, pid int) {
	t.Helper()
	testsync.Until(t, "the end of process "+strconv.Itoa(pid), func() bool { return !isAlive(pid) })
}

func TestWhatACommandHasStartedEndsWithIt(t *testing.T) {
	for how, leave := range leaving {
		for name, then := range map[string]string{"success": "exit 0", "failure": "exit 3", "signal": "kill -9 $$", "timeout": "sleep 600"} {
			t.Run(how+", "+name, func(t *testing.T) {
				t.Parallel()
				plan, file := leavingScript(t, leave, then)
				ctx, cancel := context.WithCancel(t.Context())
				defer cancel()
				if name == "timeout" {
					go func() {
						readPid(t, file)
						cancel()
					}()
				}
				end, err := plan.Run(ctx, new(Output), new(Output))
				if err != nil || end.Killed != (name == "timeout") {
					t.Errorf("got %+v, %v", end, err)
				}
				awaitDeath(t, readPid(t, file))
			})
		}
	}
}

// A guard may run several commands concurrently.
func TestWhatACommandHasStartedDoesNotEndWithAnother(t *testing.T) {
	plan, file := leavingScript(t, leaving["a daemon"], "sleep 600")
	ctx, cancel := context.WithCancel(t.Context())
	defer cancel()
	ended := make(chan End, 1)
	go func() {
		end, err := plan.Run(ctx, new(Output), new(Output))
		if err != nil {
			t.Error(err)
		}
		ended <- end
	}()
	pid := readPid(t, file)
	for range 3 {
		other, file := leavingScript(t, leaving["a daemon"], "exit 0")
		if end, err := other.Run(t.Context(), new(Output), new(Output)); err != nil || end.Status != 0 {
			t.Errorf("got %+v, %v", end, err)
		}
		awaitDeath(t, readPid(t, file))
	}
	if !isAlive(pid) {
		t.Error("the process of a command that runs was killed")
	}
	cancel()
	testsync.Receive(t, "the end", ended)
	awaitDeath(t, pid)
}

func TestWhatACommandMayDetachGoesOnAfterItsSuccess(t *testing.T) {
	for name, c := range map[string]struct {
		then   string
		goesOn bool
	}{"success": {"exit 0", true}, "failure": {"exit 3", false}} {
		t.Run(name, func(t *testing.T) {
			plan, file := leavingScript(t, leaving["a daemon"], c.then)
			plan.MayDetach = true
			if _, err := plan.Run(t.Context(), new(Output), new(Output)); err != nil {
				t.Error(err)
			}
			pid := readPid(t, file)
			if !c.goesOn {
				awaitDeath(t, pid)
				return
			}
			defer func() { _ = syscall.Kill(pid, syscall.SIGKILL) }()
			if _, err := planOf(t, Command{Words: []string{"/bin/true"}}).Run(t.Context(), new(Output), new(Output)); err != nil {
				t.Error(err)
			}
			if !isAlive(pid) {
				t.Error("the service was killed")
			}
		})
	}
}

// roleVariable makes the test program run commands until it is killed; its value is the directory of their files.
const roleVariable = "SONDE_COMMAND_TEST"

func TestWhatACommandHasStartedEndsWithTheProgramThatRunsIt(t *testing.T) {
	if dir := os.Getenv(roleVariable); dir != "" {
		own := exec.Command("setsid", "sleep", "600") // not a command of this package
		if err := own.Start(); err != nil {
			t.Fatal(err)
		}
		for name, plan := range map[string]Plan{"shared": {}, "own": {MayDetach: true}} {
			script, file := leavingScript(t, leaving["a daemon"], "echo $$ >"+dir+"/"+name+".command; sleep 600")
			script.MayDetach = plan.MayDetach
			go func() { _, _ = script.Run(context.Background(), new(Output), new(Output)) }()
			if err := os.WriteFile(filepath.Join(dir, name), []byte(strconv.Itoa(readPid(t, file))+"\n"), 0o600); err != nil {
				t.Error(err)
			}
		}
		_ = os.WriteFile(filepath.Join(dir, "foreign"), []byte(strconv.Itoa(own.Process.Pid)+"\n"), 0o600)
		select {}
	}
	dir := t.TempDir()
	engine := exec.Command(os.Args[0], "-test.run", "^"+t.Name()+"$")
	engine.Env = append(os.Environ(), roleVariable+"="+dir)
	if err := engine.Start(); err != nil {
		t.Fatal(err)
	}
	pids := map[string]int{}
	for _, name := range []string{"shared", "shared.command", "own", "own.command", "foreign"} {
		pids[name] = readPid(t, filepath.Join(dir, name))
	}
	_ = engine.Process.Kill()
	_ = engine.Wait()
	defer func() { _ = syscall.Kill(pids["foreign"], syscall.SIGKILL) }()
	for name, pid := range pids {
		if name != "foreign" {
			awaitDeath(t, pid)
		}
	}
	if !isAlive(pids["foreign"]) {
		t.Error("a process was killed that the program has started by itself")
	}
}

// currentGuard returns the guard that most commands use.
func currentGuard() *guard {
	guards.currentMu.Lock()
	defer guards.currentMu.Unlock()
	return guards.current
}

func TestWhatAGuardThatWasKilledHasLeftEndsWithTheNextCommand(t *testing.T) {
	plan, file := leavingScript(t, leaving["a daemon"], "sleep 600")
	ended := make(chan error, 1)
	go func() {
		_, err := plan.Run(t.Context(), new(Output), new(Output))
		ended <- err
	}()
	pid := readPid(t, file)
	_ = syscall.Kill(currentGuard().pid, syscall.SIGKILL)
	if err := testsync.Receive(t, "the end", ended); !shortage.IsFork(err) {
		t.Errorf("the error is %v, and blames the command", err)
	}
	if end, err := planOf(t, Command{Words: []string{"/bin/true"}}).Run(t.Context(), new(Output), new(Output)); err != nil || end.Status != 0 {
		t.Errorf("the next command: %+v, %v", end, err)
	}
	awaitDeath(t, pid)
}

func TestAGuardThatWasStoppedBlamesNoCommand(t *testing.T) {
	plan := planOf(t, Command{Words: []string{"/bin/true"}})
	if _, err := plan.Run(t.Context(), new(Output), new(Output)); err != nil {
		t.Fatal(err)
	}
	stopped := currentGuard()
	_ = syscall.Kill(stopped.pid, syscall.SIGSTOP)
	ctx, pass := testsync.Deadline(t.Context())
	pass()
	end, err := plan.runNow(ctx)
	if !shortage.IsFork(err) || end.Stuck == nil {
		t.Errorf("got %+v, %v", end, err)
	}
	testsync.Receive(t, "the end of the command", end.Stuck)
	if end, err := plan.Run(t.Context(), new(Output), new(Output)); err != nil || end.Status != 0 {
		t.Errorf("the next command: %+v, %v", end, err)
	}
}

func (p Plan) runNow(ctx context.Context) (End, error) {
	return p.run(ctx, new(Output), new(Output), func(error) {})
}

func TestACommandThatHasJoinedAnotherGroupIsKilled(t *testing.T) {
	if _, err := exec.LookPath("perl"); err != nil {
		t.Skip("perl is missing")
	}
	runBoth(t, func(t *testing.T, run runFunc) {
		file := filepath.Join(t.TempDir(), "pid")
		perl := `$p = fork() // die; if (!$p) { sleep 10; exit } setpgrp($p, $p); setpgrp(0, $p) or die; open(F, ">", $ARGV[0]); print F "$$\n"; close F; sleep 600`
		plan := planOf(t, Command{Words: []string{"perl", "-e", Literal(perl), file}})
		ctx, cancel := context.WithCancel(t.Context())
		defer cancel()
		go func() {
			readPid(t, file)
			cancel()
		}()
		end, err := run(plan, ctx, new(Output), new(Output))
		if err != nil || !end.Killed {
			t.Errorf("got %+v, %v", end, err)
		}
		awaitDeath(t, readPid(t, file))
	})
}

func TestBothWaysFindTheSameChildren(t *testing.T) {
	parent := exec.Command("/bin/sh", "-c", "sleep 600 & sleep 600 & wait")
	if err := parent.Start(); err != nil {
		t.Fatal(err)
	}
	defer func() {
		for _, pid := range Children(parent.Process.Pid) {
			_ = syscall.Kill(pid, syscall.SIGKILL)
		}
		_ = parent.Wait()
	}()
	testsync.Until(t, "two children both ways", func() bool {
		found, byParent := Children(parent.Process.Pid), childrenByParent(parent.Process.Pid)
		slices.Sort(found)
		slices.Sort(byParent)
		return len(found) == 2 && slices.Equal(found, byParent)
	})
}

// The order to start the command then uses a file.
func TestALongCommandIsStarted(t *testing.T) {
	plan := planOf(t, Command{Words: []string{"/bin/sh", "-c", `echo ${#A} ${#B}`}, Env: map[string]string{
		"A": strings.Repeat("a", 100_000), "B": strings.Repeat("b", 50_000),
	}})
	stdout := &Output{Max: 100}
	if end, err := plan.Run(t.Context(), stdout, new(Output)); err != nil || stdout.String() != "100000 50000\n" {
		t.Errorf("got %q, %+v, %v", stdout, end, err)
	}
}

func FuzzDecodePlan(f *testing.F) {
	f.Add("")
	f.Add(string(Plan{Path: "/bin/true", Words: []string{"true", "a b", ""}, Env: []string{"A="}, Dir: "/", MayDetach: true,
		Credential: &syscall.Credential{Uid: 7, Gid: 8, Groups: []uint32{9, 10}}}.encode()))
	f.Add(string(Plan{Path: "x", Words: []string{"x"}, Dir: "/tmp", Credential: &syscall.Credential{Uid: 1}}.encode()))
	f.Fuzz(func(t *testing.T, text string) {
		p, err := decodePlan(text)
		if err != nil {
			return
		}
		if again, err := decodePlan(string(p.encode())); err != nil || string(again.encode()) != string(p.encode()) {
			t.Errorf("%+v becomes %+v, %v", p, again, err)
		}
	})
}

func TestAGuardHasNoMoreThreadsThanAreReserved(t *testing.T) {
	plan := planOf(t, Command{Words: []string{"/bin/true"}})
	for range 20 {
		if _, err := plan.Run(t.Context(), new(Output), new(Output)); err != nil {
			t.Fatal(err)
		}
	}
	tasks, err := os.ReadDir("/proc/" + strconv.Itoa(currentGuard().pid) + "/task")
	if err != nil || len(tasks) > guardTasks {
		t.Errorf("the guard has %d threads, more than %d: %v", len(tasks), guardTasks, err)
	}
}

// The user of a command might not be allowed to enter the engine's directory, but the command still starts there.
func TestACommandInheritsTheDirectoryOfTheEngine(t *testing.T) {
	if os.Geteuid() != 0 {
		t.Skip("needs root, for another user")
	}
	for _, mode := range []os.FileMode{0o755, 0o700} {
		dir := t.TempDir()
		if err := os.Chmod(dir, mode); err != nil {
			t.Fatal(err)
		}
		t.Chdir(dir)
		plan := planOf(t, Command{Words: []string{"/bin/true"}})
		plan.Credential = &syscall.Credential{Uid: 65534, Gid: 65534}
		if end, err := plan.Run(t.Context(), new(Output), new(Output)); err != nil || end.Status != 0 {
			t.Errorf("mode %o: got %+v, %v", mode, end, err)
		}
	}
}
