package main

import (
	"bufio"
	"bytes"
	"fmt"
	"io"
	"net"
	"os"
	"os/exec"
	"path/filepath"
	"regexp"
	"strings"
	"syscall"
	"testing"
	"time"

	"github.com/sonde-probe/sonde/tests/dialtest"
	"github.com/sonde-probe/sonde/tests/gatewaytest"
	"github.com/sonde-probe/sonde/tests/tier"
)

// guide is the guide from one engine to three.
const guide = "../../../docs/fleet.md"

// TestTheGuideHolds runs the commands of the guide in a temporary folder with free ports, and compares their output.
// Configurations that are not saved as a file must be valid.
func TestTheGuideHolds(t *testing.T) {
	tier.Needs(t, "etcd")
	text, err := os.ReadFile(guide)
	if err != nil {
		t.Fatal(err)
	}
	s := newShell(t)
	checked := 0
	file := "" // named in the text before a block
	for i, block := range strings.Split(s.places.Replace(string(text)), "```") {
		language, body, _ := strings.Cut(block, "\n")
		switch {
		case i%2 == 0: // text between the blocks
			file = ""
			if name := named.FindStringSubmatch(block); name != nil {
				file = name[1]
			}
		case language == "hcl" && file != "":
			s.save(file, body)
		case language == "hcl":
			checked++
			s.validate(fmt.Sprintf("block-%d.hcl", checked), body)
		case language == "console":
			s.follow(body)
		case language == "sh": // for machines with systemd
		default:
			t.Fatalf("%s has a block %q, which this test does not know", guide, language)
		}
	}
	if checked == 0 {
		t.Errorf("%s shows no configuration that is not saved", guide)
	}
}

// named matches the end of a text that names the file in the next block.
var named = regexp.MustCompile("as `([^`]+)`:\n\n$")

// differs matches the parts of outputs that vary: the remaining lease, who drained an engine and when, and the drain's
// progress.
var differs = regexp.MustCompile(`[0-9.]+s more|by \S+@\S+, [0-9]+s ago|engine-3 owns [0-9]+ shards\n`)

// shell runs the commands of the guide.
type shell struct {
	t      *testing.T
	dir    string
	places *strings.Replacer // replaces names in the guide by those in the test
	input  io.Writer
	output *bufio.Scanner
}

// newShell starts a shell with an etcd on free ports. When the test ends, the shell and all processes that it started are
// killed.
func newShell(t *testing.T) *shell {
	s := &shell{t: t, dir: t.TempDir()}
	clients, peers := freeURL(t), freeURL(t)
	s.places = placesOf(t, clients)
	c := exec.Command("sh")
	c.Dir, c.Env = s.dir, append(os.Environ(), "HOME="+s.dir, "SONDE_ZONE=eu-1",
		"ETCD_LISTEN_CLIENT_URLS="+clients, "ETCD_ADVERTISE_CLIENT_URLS="+clients, "ETCD_LISTEN_PEER_URLS="+peers,
		"ETCD_INITIAL_ADVERTISE_PEER_URLS="+peers, "ETCD_INITIAL_CLUSTER=default="+peers)
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
		_ = syscall.Kill(-c.Process.Pid, syscall.SIGKILL) // all processes that the shell has started
		_ = c.Wait()
	})
	return s
}

// placesOf returns a replacer for the guide's names: ports by free ports, etcd's port by that of a URL, and the files of a
// service by local ones.
func placesOf(t *testing.T, etcd string) *strings.Replacer {
	t.Helper()
	_, port, _ := net.SplitHostPort(strings.TrimPrefix(etcd, "http://"))
	places := []string{"2379", port}
	for _, port := range []string{"9651", "9652", "9653"} {
		places = append(places, port, gatewaytest.FreePort(t))
	}
	certFile, keyFile := dialtest.Files(t, dialtest.NewAuthority(t).Sign(t, time.Hour, "etcd-1"))
	password := filepath.Join(t.TempDir(), "password")
	if err := os.WriteFile(password, []byte("correct-horse-battery\n"), 0o600); err != nil {
		t.Fatal(err)
	}
	return strings.NewReplacer(append(places, "/etc/sonde/etcd.pem", certFile, "/etc/sonde/etcd.key", keyFile, "/etc/sonde/etcd.password", password)...)
}

// save writes a file from the guide.
func (s *shell) save(name, text string) {
	s.t.Helper()
	path := filepath.Join(s.dir, name)
	if err := os.MkdirAll(filepath.Dir(path), 0o755); err != nil {
		s.t.Fatal(err)
	}
	if err := os.WriteFile(path, []byte(text), 0o644); err != nil {
		s.t.Fatal(err)
	}
}

// validate validates a configuration from the guide, in its own folder.
func (s *shell) validate(name, text string) {
	s.t.Helper()
	s.save("shown/"+name, text)
	if got := s.run("sonde-fleet validate --strict shown/" + name); !strings.Contains(got, ": valid, ") {
		s.t.Errorf("a configuration that the guide shows:\n%s\n%s", text, got)
	}
}

// follow runs the commands of a block. A command with an expected output is retried until it writes that output.
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

// run runs a command and returns its output, without spaces at the ends of lines.
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
