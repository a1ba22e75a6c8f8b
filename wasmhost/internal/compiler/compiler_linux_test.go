package compiler

import (
	"bytes"
	"context"
	"encoding/binary"
	"errors"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"regexp"
	"strconv"
	"strings"
	"syscall"
	"testing"
	"time"

	"github.com/sonde-probe/sonde/tests/testsync"
)

// module returns a module with one function, which has locals and a body.
func module(locals int, body []byte) []byte {
	number := func(n int) []byte { return binary.AppendUvarint(nil, uint64(n)) }
	section := func(id byte, content ...[]byte) []byte {
		all := bytes.Join(content, nil)
		return append(append([]byte{id}, number(len(all))...), all...)
	}
	code := bytes.Join([][]byte{{1}, number(locals), {0x7e}, body, {0x0b}}, nil)
	return bytes.Join([][]byte{
		[]byte("\x00asm\x01\x00\x00\x00"),
		section(1, []byte{1, 0x60, 0, 0}),
		section(3, []byte{1, 0}),
		section(10, []byte{1}, number(len(code)), code),
	}, nil)
}

// manyLocals returns a module of 90 KB whose compiler needs gigabytes: each of 20,000 locals
// may get a new value at the start of each of 5,000 loops.
func manyLocals() []byte {
	const locals, loops = 20_000, 5_000
	body := bytes.Repeat([]byte{0x03, 0x40}, loops)
	for n := range locals {
		body = append(binary.AppendUvarint(append(body, 0x20), uint64(n)), 0x1a) // local.get, drop
	}
	return module(locals, append(body, bytes.Repeat([]byte{0x0b}, loops)...))
}

// deepBlocks returns a module of 300 KB whose compiler needs more than a minute: blocks within
// blocks.
func deepBlocks() []byte {
	const depth = 100_000
	return module(1, append(bytes.Repeat([]byte{0x02, 0x40}, depth), bytes.Repeat([]byte{0x0b}, depth)...))
}

var idle = module(1, nil)

// running returns the IDs of this process's children that compile.
func running() (pids []int) {
	files, _ := filepath.Glob("/proc/self/task/*/children")
	for _, file := range files {
		text, _ := os.ReadFile(file)
		for _, field := range strings.Fields(string(text)) {
			pid, _ := strconv.Atoi(field)
			if line, _ := os.ReadFile(fmt.Sprintf("/proc/%d/cmdline", pid)); strings.HasPrefix(string(line), Name+"\x00") {
				pids = append(pids, pid)
			}
		}
	}
	return pids
}

// ample are limits that no test reaches.
var ample = Limits{Memory: 1 << 30, CPU: 10 * time.Minute}

// start starts to compile a module that does not end soon, and returns a function that waits
// for its error.
func start(t *testing.T, ctx context.Context) (wait func() error) {
	done, dir := make(chan error, 1), t.TempDir()
	go func() { done <- Compile(ctx, deepBlocks(), dir, ample) }()
	return func() error { return testsync.Receive(t, "the end of a compilation", done) }
}

// oneChild returns the ID of the only child, once it has read its module.
func oneChild(t *testing.T) (pid int) {
	t.Helper()
	testsync.Until(t, "one child that works", func() bool {
		pids := running()
		if len(pids) != 1 {
			return false
		}
		pid = pids[0]
		limits, _ := os.ReadFile(fmt.Sprintf("/proc/%d/limits", pid))
		return regexp.MustCompile(`Max cpu time +600 `).Match(limits)
	})
	return pid
}

func TestALimitIsNamedByItsError(t *testing.T) {
	before := peakMemory(t)
	tests := map[string]struct {
		module []byte
		limits Limits
		want   string
	}{
		"memory":         {manyLocals(), Limits{Memory: 192 << 20, CPU: time.Hour}, "compile: takes more than 192MiB of memory, the limit"},
		"processor time": {deepBlocks(), Limits{Memory: 1 << 30, CPU: time.Second}, "compile: takes more than 1s of processor time, the limit"},
		"shared memory":  {manyLocals(), Limits{Memory: 192 << 20, CPU: time.Hour, shared: true}, "192MiB of memory, half of the limit of the control group: raise"},
	}
	for name, test := range tests {
		t.Run(name, func(t *testing.T) {
			err := Compile(t.Context(), test.module, t.TempDir(), test.limits)
			var limit *LimitError
			if !errors.As(err, &limit) || !strings.Contains(err.Error(), test.want) {
				t.Errorf("got %v, want %q", err, test.want)
			}
		})
	}
	if grown := peakMemory(t) - before; grown > 32<<20 {
		t.Errorf("this process has grown by %d bytes", grown)
	}
}

// peakMemory returns the most memory that this process had.
func peakMemory(t *testing.T) int64 {
	text, err := os.ReadFile("/proc/self/status")
	if err != nil {
		t.Fatal(err)
	}
	kib, err := strconv.ParseInt(string(regexp.MustCompile(`VmHWM:\s+(\d+) kB`).FindSubmatch(text)[1]), 10, 64)
	if err != nil {
		t.Fatal(err)
	}
	return kib << 10
}

func TestTheEndOfACompilationIsJudged(t *testing.T) {
	file := filepath.Join(t.TempDir(), "file")
	if err := os.WriteFile(file, nil, 0o600); err != nil {
		t.Fatal(err)
	}
	if err := Compile(t.Context(), idle, file, ample); !errors.Is(err, ErrStore) {
		t.Errorf("a file in place of the directory: %v", err)
	}
	invalid := module(1, []byte{0x6a, 0x1a}) // i32.add, drop
	if err := Compile(t.Context(), invalid, t.TempDir(), ample); err == nil || !strings.HasPrefix(err.Error(), "compile: invalid function[0]") {
		t.Errorf("an invalid module: %v", err)
	}
	if err := Compile(t.Context(), idle, t.TempDir(), ample); err != nil {
		t.Errorf("a valid module: %v", err)
	}
	wait := start(t, t.Context())
	if err := syscall.Kill(oneChild(t), syscall.SIGKILL); err != nil {
		t.Fatal(err)
	}
	if err := wait(); !errors.Is(err, ErrShortage) {
		t.Errorf("a child that the kernel has killed: %v", err)
	}
}

func TestChildrenAreFewAndEndWhenCancelled(t *testing.T) {
	ctx, cancel := context.WithCancel(t.Context())
	var waits []func() error
	for range 2 * maxChildren {
		waits = append(waits, start(t, ctx))
	}
	testsync.Until(t, "children", func() bool { return len(running()) == maxChildren })
	cancel()
	for _, wait := range waits {
		if err := wait(); !errors.Is(err, context.Canceled) {
			t.Errorf("got %v", err)
		}
	}
	if pids := running(); len(pids) > 0 {
		t.Errorf("children %v are left", pids)
	}
}

func TestAChildHasNothingOfTheEngine(t *testing.T) {
	t.Setenv("SONDE_TEST_SECRET", "secret")
	secret, err := syscall.Open("/proc/self/maps", syscall.O_RDONLY, 0) // not close-on-exec
	if err != nil {
		t.Fatal(err)
	}
	defer syscall.Close(secret)
	ctx, cancel := context.WithCancel(t.Context())
	wait := start(t, ctx)
	pid := oneChild(t)
	environment, err := os.ReadFile(fmt.Sprintf("/proc/%d/environ", pid))
	if err != nil || strings.Contains(string(environment), "secret") {
		t.Errorf("its environment is %q, %v", environment, err)
	}
	files, err := os.ReadDir(fmt.Sprintf("/proc/%d/fd", pid))
	if err != nil {
		t.Error(err)
	}
	for _, f := range files {
		if name, _ := os.Readlink(fmt.Sprintf("/proc/%d/fd/%s", pid, f.Name())); strings.HasPrefix(name, "/proc") {
			t.Errorf("its descriptor %s is %s", f.Name(), name)
		}
	}
	cancel()
	if err := wait(); !errors.Is(err, context.Canceled) {
		t.Errorf("got %v", err)
	}
}

// roleEngine makes the test's program an engine that compiles deepBlocks into the directory
// that the variable names.
const roleEngine = "SONDE_TEST_COMPILE_INTO"

func TestMain(m *testing.M) {
	if dir := os.Getenv(roleEngine); dir != "" {
		fmt.Println(Compile(context.Background(), deepBlocks(), dir, ample))
		os.Exit(1)
	}
	os.Exit(m.Run())
}

func TestAChildEndsWithTheEngine(t *testing.T) {
	engine := exec.Command(executable)
	engine.Env = append(os.Environ(), roleEngine+"="+t.TempDir())
	if err := engine.Start(); err != nil {
		t.Fatal(err)
	}
	var child string
	testsync.Until(t, "a child of the engine", func() bool {
		files, _ := filepath.Glob(fmt.Sprintf("/proc/%d/task/*/children", engine.Process.Pid))
		for _, file := range files {
			if text, _ := os.ReadFile(file); len(text) > 0 {
				child = strings.TrimSpace(string(text))
				return true
			}
		}
		return false
	})
	if err := engine.Process.Kill(); err != nil {
		t.Fatal(err)
	}
	_ = engine.Wait() // it was killed
	testsync.Until(t, "the end of the child", func() bool {
		stat, err := os.ReadFile("/proc/" + child + "/stat")
		return err != nil || strings.Contains(string(stat), ") Z ") // where init does not reap
	})
}

func TestLimitsGrowWithTheModule(t *testing.T) {
	if got, want := LimitsOf(0), (Limits{Memory: 256 << 20, CPU: 30 * time.Second}); got != want {
		t.Errorf("without a byte: %+v", got)
	}
	if got, want := LimitsOf(20<<20), (Limits{Memory: 896 << 20, CPU: 197 * time.Second}); got != want {
		t.Errorf("with 20 MiB: %+v", got)
	}
}
