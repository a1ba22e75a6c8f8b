package main

import (
	"bufio"
	"bytes"
	"fmt"
	"io"
	"os"
	"os/exec"
	"path/filepath"
	"regexp"
	"strings"
	"syscall"
	"testing"
	"time"

	"github.com/sonde-probe/sonde/tests/gatewaytest"
)

// guide goes from one engine to three.
const guide = "../../../docs/fleet.md"

// TestTheGuideHolds does what the guide says, in a folder of its own and with free ports, and compares what its
// commands write.
func TestTheGuideHolds(t *testing.T) {
	gatewaytest.Installed(t, "etcd")
	text, err := os.ReadFile(guide)
	if err != nil {
		t.Fatal(err)
	}
	var ports []string
	for _, port := range []string{"2379", "2380", "9651", "9652", "9653"} {
		_, free, _ := strings.Cut(gatewaytest.FreeAddress(t), ":")
		ports = append(ports, port, free)
	}
	until, _, found := strings.Cut(strings.NewReplacer(ports...).Replace(string(text)), "\n## In production\n")
	if !found {
		t.Fatalf("%s has no heading In production", guide)
	}
	s := newShell(t)
	file := ""
	for i, block := range strings.Split(until, "```") {
		language, body, _ := strings.Cut(block, "\n")
		switch {
		case i%2 == 0: // between the blocks
			if name := named.FindStringSubmatch(block); name != nil {
				file = filepath.Join(s.dir, name[1])
			}
		case language == "hcl":
			if err := os.MkdirAll(filepath.Dir(file), 0o755); err != nil {
				t.Fatal(err)
			}
			if err := os.WriteFile(file, []byte(body), 0o644); err != nil {
				t.Fatal(err)
			}
		case language == "console":
			s.follow(body)
		default:
			t.Fatalf("%s has a block %q, which this test does not know", guide, language)
		}
	}
}

// named is the end of a text that names the file in the block after it.
var named = regexp.MustCompile("as `([^`]+)`:\n\n$")

// differs is what differs each time: how long a lease lasts, who has drained an engine when, and how far that was at each look.
var differs = regexp.MustCompile(`[0-9.]+s more|by \S+@\S+, [0-9]+s ago|engine-3 owns [0-9]+ shards\n`)

// shell is a shell with the commands of the guide.
type shell struct {
	t      *testing.T
	dir    string
	input  io.Writer
	output *bufio.Scanner
}

// newShell starts a shell, which ends with the test, with all that it has started.
func newShell(t *testing.T) *shell {
	s := &shell{t: t, dir: t.TempDir()}
	c := exec.Command("sh")
	c.Dir, c.Env = s.dir, append(os.Environ(), "HOME="+s.dir)
	c.SysProcAttr = &syscall.SysProcAttr{Setpgid: true}
	input, err := c.StdinPipe()
	if err != nil {
		t.Fatal(err)
	}
	output, err := c.StdoutPipe()
	if err != nil {
		t.Fatal(err)
	}
	c.Stderr = c.Stdout
	if err := c.Start(); err != nil {
		t.Fatal(err)
	}
	s.input, s.output = input, bufio.NewScanner(output)
	t.Cleanup(func() {
		_ = syscall.Kill(-c.Process.Pid, syscall.SIGKILL) // all that the shell has started
		_ = c.Wait()
	})
	return s
}

// follow runs the commands of a block. One that shows something is run again until it writes that.
func (s *shell) follow(block string) {
	s.t.Helper()
	for _, step := range strings.Split("\n"+strings.TrimSuffix(block, "\n"), "\n$ ")[1:] {
		command, want, _ := strings.Cut(step, "\n")
		deadline := time.Now().Add(patience)
		got := s.run(command)
		for ; want != "" && differs.ReplaceAllString(got, "") != differs.ReplaceAllString(want, ""); got = s.run(command) {
			if time.Now().After(deadline) {
				s.t.Fatalf("$ %s\n%s\nwant:\n%s%s", command, got, want, s.logs())
			}
			time.Sleep(100 * time.Millisecond)
		}
	}
}

// run runs a command and returns what it writes, without spaces at the ends of lines.
func (s *shell) run(command string) string {
	s.t.Helper()
	const end = "the command has ended"
	if _, err := fmt.Fprintf(s.input, "%s\necho '%s'\n", command, end); err != nil {
		s.t.Fatal(err)
	}
	var lines []string
	for s.output.Scan() {
		if s.output.Text() == end {
			return strings.Join(lines, "\n")
		}
		lines = append(lines, strings.TrimRight(s.output.Text(), " "))
	}
	s.t.Fatalf("the shell has ended after %s:\n%s", command, strings.Join(lines, "\n"))
	return ""
}

func (s *shell) logs() string {
	var all bytes.Buffer
	paths, _ := filepath.Glob(filepath.Join(s.dir, "*.log")) // the pattern is valid
	for _, path := range paths {
		text, _ := os.ReadFile(path) // of a failing test
		fmt.Fprintf(&all, "\n%s:\n%s", filepath.Base(path), text[max(0, len(text)-3000):])
	}
	return all.String()
}
