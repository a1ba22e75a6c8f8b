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
	"runtime"
	"strconv"
	"strings"
	"syscall"
	"testing"
	"time"

	"github.com/sonde-probe/sonde/internal/reexec"
	"github.com/sonde-probe/sonde/tests/testsync"
	"github.com/sonde-probe/sonde/tests/tier"
)

// module returns a module with one function, given its number of locals and its body.
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

// manyLocals returns a module of 90 KB that takes gigabytes to compile: each of 20,000 locals may
// get a new value at the start of each of 5,000 loops.
func manyLocals() []byte {
	const locals, loops = 20_000, 5_000
	body := bytes.Repeat([]byte{0x03, 0x40}, loops)
	for n := range locals {
		body = append(binary.AppendUvarint(append(body, 0x20), uint64(n)), 0x1a) // local.get, drop
	}
	return module(locals, append(body, bytes.Repeat([]byte{0x0b}, loops)...))
}

// deepBlocks returns a module of 300 KB that takes more than a minute to compile: nested blocks.
func deepBlocks() []byte {
	const depth = 100_000
	return module(1, append(bytes.Repeat([]byte{0x02, 0x40}, depth), bytes.Repeat([]byte{0x0b}, depth)...))
}

var idle = module(1, nil)

// running returns the IDs of this process's compiler children.
func running() (pids []int) {
	files, _ := filepath.Glob("/proc/self/task/*/children")
	for _, file := range files {
		text, _ := os.ReadFile(file)
		for _, field := range strings.Fields(string(text)) {
			pid, _ := strconv.Atoi(field)
			if line, _ := os.ReadFile(fmt.Sprintf("/proc/%d/cmdline", pid)); strings.HasPrefix(string(line), childName+"\x00") {
				pids = append(pids, pid)
			}
		}
	}
	return pids
}

// ample has limits that no test reaches.
var ample = Limits{Memory: 512 << 20, CPU: 10 * time.Minute}

// compileError returns the error of a compilation, and discards the code.
func compileError(ctx context.Context, module []byte, limits Limits) error {
	code, err := Compile(ctx, module, limits)
	if err == nil {
		err = code.Close()
	}
	return err
}

// start starts the compilation of a module that takes long, and returns a function that waits for
// its error.
func start(t *testing.T, ctx context.Context) (wait func() error) {
	done := make(chan error, 1)
	go func() { done <- compileError(ctx, deepBlocks(), ample) }()
	return func() error { return testsync.Receive(t, "the end of a compilation", done) }
}

// oneChild waits until the only child has read its module, and returns its ID.
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
	tier.Slow(t)
	defer func(before time.Duration) { maxDelay = before }(maxDelay)
	maxDelay = 1000 // next to busy programs, a compilation gets less than a tenth of a processor
	before := peakMemory(t)
	tests := map[string]struct {
		module []byte
		limits Limits
		want   string
	}{
		"memory":         {manyLocals(), Limits{Memory: 192 << 20, CPU: time.Hour}, "compile: module needs more than 192MiB of memory: raise compile.memory, or"},
		"processor time": {deepBlocks(), Limits{Memory: 1 << 30, CPU: time.Second}, "compile: module needs more than 1s of processor time: raise compile.time, or"},
	}
	for name, test := range tests {
		t.Run(name, func(t *testing.T) {
			err := compileError(t.Context(), test.module, test.limits)
			for errors.Is(err, ErrUnavailable) { // a busy machine did not let it compute
				err = compileError(t.Context(), test.module, test.limits)
			}
			var limit *limitError
			if !errors.As(err, &limit) || !strings.Contains(err.Error(), test.want) {
				t.Errorf("got %v, want %q", err, test.want)
			}
		})
	}
	if grown := peakMemory(t) - before; grown > 32<<20 {
		t.Errorf("this process has grown by %d bytes", grown)
	}
}

// peakMemory returns the peak memory of this process.
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
	invalid := module(1, []byte{0x6a, 0x1a}) // i32.add, drop
	if err := compileError(t.Context(), invalid, ample); err == nil || !strings.HasPrefix(err.Error(), "compile: invalid function[0]") {
		t.Errorf("an invalid module: %v", err)
	}
	if err := compileError(t.Context(), idle, ample); err != nil {
		t.Errorf("a valid module: %v", err)
	}
	wait := start(t, t.Context())
	if err := syscall.Kill(oneChild(t), syscall.SIGKILL); err != nil {
		t.Fatal(err)
	}
	if err := wait(); !errors.Is(err, ErrUnavailable) {
		t.Errorf("a child that the kernel has killed: %v", err)
	}
}

// end runs a script in a shell, and returns the shell's exit state.
func end(t *testing.T, script string) (*os.ProcessState, error) {
	c := exec.Command("/bin/sh", "-c", script)
	err := c.Run()
	if c.ProcessState == nil {
		t.Fatal(err)
	}
	return c.ProcessState, err
}

func TestWhatTheMachineLacksIsNotTheModulesFault(t *testing.T) {
	const noThread = "runtime: failed to create new OS thread (have 9 already; errno=11)"
	few, group := Limits{Memory: 1 << 20, CPU: time.Hour}, "/sys/fs/cgroup/a/memory.max"
	for name, test := range map[string]struct {
		script, message string
		granted         bool
		limits          Limits
		want            error
		text            string
	}{
		"too few threads":         {"exit 2", noThread, true, few, ErrUnavailable, "raise the limit of processes and threads"},
		"too few for cgo":         {"exit 134", "runtime/cgo: pthread_create failed: Resource temporarily unavailable", true, few, ErrUnavailable, ""},
		"killed by the kernel":    {"kill -KILL $$", "", true, few, ErrUnavailable, "killed"},
		"memory was not granted":  {"exit 2", "fatal error: runtime: out of memory", false, few, ErrUnavailable, "cannot provide 1MiB of memory"},
		"mappings not granted":    {"exit 5", "cannot allocate memory", false, few, ErrUnavailable, "this machine cannot provide"},
		"the code has no room":    {"exit 4", "compiled code cannot be written: no space left on device", true, few, ErrUnavailable, "no space left"},
		"memory of the module":    {"exit 2", "fatal error: runtime: out of memory", true, few, &limitError{}, "more than 1MiB of memory: raise compile.memory"},
		"memory left by others":   {"exit 5", "", true, Limits{Memory: 1 << 20, CPU: time.Hour, group: group}, ErrUnavailable, "1MiB of memory, half of the memory left below the limit " + group + ": raise the limit"},
		"memory taken by others":  {"exit 5", "", true, Limits{Memory: 1 << 50, CPU: time.Hour}, ErrUnavailable, "this machine cannot provide"},
		"time":                    {"exit 6", "", true, few, &limitError{}, "more than 1h0m0s of processor time"},
		"time, and does not exit": {"kill -KILL $$", "", true, Limits{CPU: 1}, &limitError{}, "of processor time"},
	} {
		t.Run(name, func(t *testing.T) {
			state, exit := end(t, test.script)
			err := judge(state, exit, test.message, test.granted, test.limits)
			is := errors.Is(err, test.want)
			if limit := (*limitError)(nil); errors.As(test.want, &limit) {
				is = errors.As(err, &limit)
			}
			if !is || !strings.Contains(err.Error(), test.text) {
				t.Errorf("got %v, want %q", err, test.text)
			}
		})
	}
}

func TestAProgramThatMayNotStartItselfIsNotTheModulesFault(t *testing.T) {
	before := reexec.Executable
	defer func() { reexec.Executable = before }()
	reexec.Executable = filepath.Join(t.TempDir(), "sonde")
	if err := os.WriteFile(reexec.Executable, nil, 0o600); err != nil { // not executable, as on a file system with noexec
		t.Fatal(err)
	}
	err := compileError(t.Context(), idle, ample)
	if !errors.Is(err, ErrUnavailable) || !strings.Contains(err.Error(), "permit that, or set compile.in_process: ") {
		t.Errorf("got %v", err)
	}
}

func TestAChildHasALowPriorityAndFewThreads(t *testing.T) {
	ctx, cancel := context.WithCancel(t.Context())
	wait := start(t, ctx)
	pid := oneChild(t)
	stat, err := os.ReadFile(fmt.Sprintf("/proc/%d/stat", pid))
	if fields := strings.Fields(string(stat[strings.LastIndexByte(string(stat), ')')+1:])); err != nil || fields[16] != strconv.Itoa(lowPriority) {
		t.Errorf("its stat is %s, %v", stat, err)
	}
	environment, err := os.ReadFile(fmt.Sprintf("/proc/%d/environ", pid))
	if want := fmt.Sprintf("GOMAXPROCS=%d\x00", runtime.GOMAXPROCS(0)); err != nil || !strings.Contains(string(environment), want) {
		t.Errorf("its environment is %q, %v", environment, err)
	}
	threads, err := os.ReadDir(fmt.Sprintf("/proc/%d/task", pid))
	if most := 2*runtime.GOMAXPROCS(0) + runtimeThreads; err != nil || len(threads) > most {
		t.Errorf("it has %d threads, %d are counted, %v", len(threads), most, err)
	}
	cancel()
	if err := wait(); !errors.Is(err, context.Canceled) {
		t.Errorf("got %v", err)
	}
}

func TestOneChildRunsAtATimeAndAllEndWhenCancelled(t *testing.T) {
	ctx, cancel := context.WithCancel(t.Context())
	var waits []func() error
	for range 4 {
		waits = append(waits, start(t, ctx))
	}
	testsync.Until(t, "a child", func() bool { return len(running()) == 1 })
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

// roleEngine is an environment variable that makes the test program an engine that compiles
// deepBlocks.
const roleEngine = "SONDE_TEST_COMPILE"

func TestMain(m *testing.M) {
	if os.Getenv(roleEngine) != "" {
		fmt.Println(compileError(context.Background(), deepBlocks(), ample))
		os.Exit(1)
	}
	os.Exit(m.Run())
}

func TestAChildEndsWithTheEngine(t *testing.T) {
	engine := exec.Command(reexec.Executable)
	engine.Env = append(os.Environ(), roleEngine+"=1")
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
		return err != nil || strings.Contains(string(stat), ") Z ") // if init does not reap it
	})
}

func TestLimitsGrowWithTheModule(t *testing.T) {
	if got, want := (Limits{}).forModule(0), (Limits{Memory: 256 << 20, CPU: 30 * time.Second}); got != want {
		t.Errorf("without a byte: %+v", got)
	}
	if got, want := (Limits{}).forModule(20<<20), (Limits{Memory: 896 << 20, CPU: 197 * time.Second}); got != want {
		t.Errorf("with 20 MiB: %+v", got)
	}
}
