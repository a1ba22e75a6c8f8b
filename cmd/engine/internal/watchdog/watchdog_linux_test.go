//go:build amd64 || arm64

package watchdog

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"os"
	"os/exec"
	"os/signal"
	"path/filepath"
	"runtime"
	"slices"
	"strings"
	"syscall"
	"testing"

	"github.com/sonde-probe/sonde/tests/tier"
)

// program is the variable that makes this test's program one that hangs.
const program = "TEST_PROGRAM"

func TestMain(m *testing.M) {
	switch os.Getenv(program) {
	case "":
		os.Exit(m.Run())
	case "exits":
		ExitOnly()
	}
	hang()
}

// hang replaces the program's file and hangs, or ends with exit code 7 if the watchdog has
// started this program.
func hang() {
	previous := Inherited()
	name, _ := os.ReadFile("/proc/self/comm")
	fmt.Println(os.Getpid(), os.Args, string(bytes.TrimSpace(name)), previous.Restarts)
	status, _ := os.ReadFile("/proc/self/status")
	for line := range strings.Lines(string(status)) {
		if strings.HasPrefix(line, "SigBlk") || strings.HasPrefix(line, "SigIgn") {
			fmt.Print(line)
		}
	}
	if previous.Restarts > 0 {
		previous.Reap(context.Background())
		fmt.Println("children:", len(Inherited().children))
		os.Exit(7)
	}
	upgrade := os.Args[0] + ".new" // half written
	if err := errors.Join(os.WriteFile(upgrade, []byte("\x7fELF"), 0o755), os.Rename(upgrade, os.Args[0])); err != nil {
		panic(err)
	}
	signal.Notify(make(chan os.Signal, 1), syscall.SIGTERM)
	child := exec.Command("sleep", "0")
	if err := child.Start(); err != nil {
		panic(err)
	}
	if err := Start(BeatInterval); err != nil {
		panic(err)
	}
	for range runtime.GOMAXPROCS(0) {
		go func() {
			for n := 0; ; n++ { // is not preempted: see GODEBUG
			}
		}()
	}
	select {}
}

// run runs this test's program as one that hangs, with a signal ignored, as by nohup.
func run(t *testing.T, kind string) (output []byte, c *exec.Cmd) {
	t.Helper()
	text, err := os.ReadFile("/proc/self/exe")
	if err != nil {
		t.Fatal(err)
	}
	file := filepath.Join(t.TempDir(), "program")
	if err := os.WriteFile(file, text, 0o755); err != nil {
		t.Fatal(err)
	}
	c = exec.Command("/bin/sh", "-c", `trap "" HUP; exec "$0" first second`, file)
	c.Env = append(os.Environ(), program+"="+kind, "GODEBUG=asyncpreemptoff=1")
	output, err = c.Output()
	if c.ProcessState == nil {
		t.Fatal(err)
	}
	return output, c
}

func TestAProgramThatHangsIsStartedAgainInItsProcess(t *testing.T) {
	tier.CI(t)
	output, c := run(t, "restarts")
	if code := c.ProcessState.ExitCode(); code != 7 {
		t.Errorf("exit code %d, want that of the second program", code)
	}
	lines := bytes.Split(bytes.TrimSpace(output), []byte("\n"))
	if len(lines) != 7 {
		t.Fatalf("output %q", output)
	}
	start := fmt.Sprintf("%d [%s first second] program ", c.ProcessState.Pid(), c.Args[3])
	for n, i := range []int{0, 3} {
		if got, want := string(lines[i]), start+fmt.Sprint(n); got != want {
			t.Errorf("program %d is %q, want %q", n, got, want)
		}
	}
	if first, second := lines[1:3], lines[4:6]; !slices.EqualFunc(first, second, bytes.Equal) {
		t.Errorf("signals of the first program are %q, of the second %q", first, second)
	}
	if got := string(lines[6]); got != "children: 0" {
		t.Errorf("after Reap: %s", got)
	}
}

func TestAProgramThatHangsWhenItShouldEndIsEnded(t *testing.T) {
	tier.CI(t)
	output, c := run(t, "exits")
	if code := c.ProcessState.ExitCode(); code != 1 || bytes.Count(output, []byte(" 0\n")) != 1 {
		t.Errorf("exit code %d, output %q", code, output)
	}
}
