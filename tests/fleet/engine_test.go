package fleet

import (
	"bufio"
	"fmt"
	"hash/crc32"
	"os"
	"os/exec"
	"path/filepath"
	"strconv"
	"strings"
	"syscall"
	"testing"
	"time"
)

// process is an engine from its start to its exit.
type process struct {
	name    string
	cmd     *exec.Cmd
	ended   chan struct{} // closed when it has exited
	faults  []*fault      // its faults, in order
	address string        // file with the address of its API
}

// fault is a fault that was injected into an engine.
type fault struct {
	kind     string
	from, to time.Time // zero while it lasts
}

func (p *process) String() string {
	if p == nil {
		return "an unknown process"
	}
	return fmt.Sprintf("%s (process %d)", p.name, p.cmd.Process.Pid)
}

// suffered reports whether the engine had a fault of a kind between two times; "" means any kind.
func (p *process) suffered(kind string, from, to time.Time) bool {
	for _, f := range p.faults {
		if (kind == "" || f.kind == kind) && f.from.Before(to) && (f.to.IsZero() || f.to.After(from)) {
			return true
		}
	}
	return false
}

// end records the end of the fault.
func (f *fault) end() { f.to = time.Now() }

// history describes the faults of the engine for people.
func (p *process) history() (text string) {
	if p == nil {
		return ""
	}
	for _, f := range p.faults {
		text += fmt.Sprintf("; %s from %s to %s", f.kind, clock(f.from), clock(f.to))
	}
	return text
}

// suffer records that the engine has a fault from now on.
func (p *process) suffer(kind string) *fault {
	f := &fault{kind: kind, from: time.Now()}
	p.faults = append(p.faults, f)
	return f
}

// startProcess starts an engine with the configuration in a folder, which also gets its log.
func startProcess(t *testing.T, program, dir, name string, env ...string) *process {
	t.Helper()
	log, err := os.OpenFile(filepath.Join(dir, name+".log"), os.O_APPEND|os.O_CREATE|os.O_WRONLY, 0o644)
	if err != nil {
		t.Fatal(err)
	}
	defer log.Close()
	p := &process{name: name, ended: make(chan struct{}), address: filepath.Join(dir, name+".address")}
	_ = os.Remove(p.address) // one of a previous process
	p.cmd = exec.Command(program, "run", "--cluster-name", name, "--listen", "127.0.0.1:0", "--address-file", p.address, "--log-format", "text")
	p.cmd.Dir, p.cmd.Stdout, p.cmd.Stderr = dir, log, log
	p.cmd.Env = append(os.Environ(), env...)
	p.cmd.SysProcAttr = &syscall.SysProcAttr{Credential: &syscall.Credential{Gid: groupOf(name)}} // by which filters identify it
	if err := p.cmd.Start(); err != nil {
		t.Fatal(err)
	}
	go func() {
		defer close(p.ended)
		_ = p.cmd.Wait() // it is killed
	}()
	t.Cleanup(func() { p.end(syscall.SIGKILL) })
	return p
}

// groupOf returns the group ID that an engine runs with.
func groupOf(name string) uint32 { return 10_000 + crc32.ChecksumIEEE([]byte(name))%10_000 }

// end sends a signal that terminates the engine, and waits for its exit.
func (p *process) end(s syscall.Signal) {
	p.signal(s)
	<-p.ended
}

// signal sends a signal to the engine, and to the processes that it has started.
func (p *process) signal(s syscall.Signal) {
	_ = p.cmd.Process.Signal(s) // it may have exited
	for _, pid := range descendants(p.cmd.Process.Pid) {
		_ = syscall.Kill(pid, s) // it may have exited
	}
}

// descendants returns the descendants of a process.
func descendants(pid int) (all []int) {
	files, _ := filepath.Glob(fmt.Sprintf("/proc/%d/task/*/children", pid)) // the pattern is valid
	for _, file := range files {
		text, _ := os.ReadFile(file) // the thread may have exited
		for _, word := range strings.Fields(string(text)) {
			if child, err := strconv.Atoi(word); err == nil {
				all = append(append(all, child), descendants(child)...)
			}
		}
	}
	return all
}

// linesOf returns the lines of an engine's log that contain all of the given texts.
func linesOf(t *testing.T, dir, name string, texts ...string) (found []string) {
	t.Helper()
	log, err := os.Open(filepath.Join(dir, name+".log"))
	if err != nil {
		t.Fatal(err)
	}
	defer log.Close()
	lines := bufio.NewScanner(log)
	lines.Buffer(nil, 1<<20)
next:
	for lines.Scan() {
		for _, text := range texts {
			if !strings.Contains(lines.Text(), text) {
				continue next
			}
		}
		found = append(found, lines.Text())
	}
	return found
}
