package tests

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
	"slices"
	"strconv"
	"strings"
	"syscall"
	"testing"
	"time"

	"github.com/sonde-probe/sonde/tests/gatewaytest"
	"github.com/sonde-probe/sonde/tests/program"
	"github.com/sonde-probe/sonde/tests/testsync"
	"github.com/sonde-probe/sonde/tests/tier"
)

// guides are the documents whose console blocks are run, line by line, and whose configurations are checked.
var guides = []string{
	"../README.md", "../docs/plugins.md", "../docs/scripts.md", "../docs/tutorial.md", stackGuide, "../docs/notify.md",
	"../docs/coming-from/kubelet.md", "../docs/coming-from/docker.md", "../docs/coming-from/blackbox.md",
	"../docs/coming-from/gatus.md", "../docs/coming-from/haproxy.md", "../docs/coming-from/monit.md", "../docs/coming-from/supervisord.md",
}

// interpreter is the plugin that runs scripts.
const interpreter = "../cmd/engine/internal/embedded/module/starlark.wasm.gz"

// notRunnable are prefixes of commands that need more than this repository.
var notRunnable = []string{"apt-get ", "systemctl ", "kubectl ", "sonde run --pods /etc/", "export PATH="}

// block is a fenced block of a document.
type block struct {
	lang   string
	before string // the line of text before it
	lines  []string
}

func TestTheGuidesCommandsWorkAsTheyStand(t *testing.T) {
	tier.Slow(t) // it builds the command and a plugin
	for i, guide := range guides {
		t.Run(filepath.Base(guide), func(t *testing.T) {
			if i > 0 {
				tier.CI(t) // a newcomer types README.md
			}
			if _, err := os.Stat(interpreter); err != nil && strings.Contains(readText(t, guide), "\nscript \"") {
				t.Skip("the interpreter of scripts has not been built: make build")
			}
			if guide == stackGuide {
				needStack(t)
			}
			r := newReader(t)
			for _, b := range blocksOf(readText(t, guide)) {
				switch b.lang {
				case "hcl":
					r.configuration(b)
				case "console":
					r.console(b)
				default:
					r.file(b)
				}
			}
		})
	}
}

func TestDocumentsShowTheExampleOfPackageEngine(t *testing.T) {
	const file = "../engine/example_gateway_test.go"
	for _, path := range []string{"../README.md", "../docs/embedding.md"} {
		example := trimmed(strings.Split(readText(t, file), "\n"))
		shown := false
		for _, b := range blocksOf(readText(t, path)) {
			if b.lang != "go" {
				continue
			}
			shown = true
			for _, line := range trimmed(b.lines) {
				i := slices.Index(example, line)
				if i < 0 {
					t.Fatalf("%s: %s lacks this line, or has it earlier: %s", path, file, line)
				}
				example = example[i+1:]
			}
		}
		if !shown {
			t.Errorf("%s has no Go block", path)
		}
	}
}

// trimmed returns lines without their indentation.
func trimmed(lines []string) []string {
	all := make([]string, len(lines))
	for i, line := range lines {
		all[i] = strings.TrimSpace(line)
	}
	return all
}

func TestTheMakeTargetsThatDocumentsNameExist(t *testing.T) {
	makefile := readText(t, "../Makefile")
	named := regexp.MustCompile("(?m)(?:`|^)make ([a-z-]+)")
	for _, path := range []string{"../README.md", "../CONTRIBUTING.md", "../docs/benchmarks.md", "../docs/guarantees.md", "../docs/kubelet.md", "../docs/operations.md", "../docs/gateways/caddy.md", "../docs/gateways/envoy.md"} {
		for _, m := range named.FindAllStringSubmatch(readText(t, path), -1) {
			if !strings.Contains(makefile, "\n"+m[1]+":") {
				t.Errorf("%s: the Makefile has no target %s", path, m[1])
			}
		}
	}
}

// blocksOf returns the fenced blocks of a document.
func blocksOf(text string) []block {
	var all []block
	var open *block
	before := ""
	for line := range strings.Lines(text) {
		line = strings.TrimRight(line, "\n")
		fence, isFence := strings.CutPrefix(line, "```")
		switch {
		case isFence && open == nil:
			open = &block{lang: fence, before: before}
		case isFence:
			all = append(all, *open)
			open = nil
		case open != nil:
			open.lines = append(open.lines, line)
		case line != "":
			before = line
		}
	}
	return all
}

// reader follows a document, in its own folder. Ports that the document names are replaced by free ones, and the folder of the
// stack by the reader's.
type reader struct {
	t      *testing.T
	dir    string
	env    []string
	places *strings.Replacer
}

func newReader(t *testing.T) *reader {
	t.Helper()
	dir, bin := openDir(t), filepath.Dir(program.Build(t, program.Sonde))
	demo, listen := gatewaytest.FreePort(t), gatewaytest.FreePort(t)
	startDemo(t, program.Build(t, program.Demo), demo)
	deployment := filepath.Join(dir, "deploy", "web.yaml")
	if err := os.MkdirAll(filepath.Dir(deployment), 0o755); err != nil {
		t.Fatal(err)
	}
	if err := os.WriteFile(deployment, []byte(manifest), 0o644); err != nil {
		t.Fatal(err)
	}
	places := []string{"9651", demo, "9660", listen, "7777", startPong(t), "/srv/shop", dir}
	for _, port := range stackPorts {
		places = append(places, port, gatewaytest.FreePort(t))
	}
	return &reader{
		t: t, dir: dir,
		env:    append(os.Environ(), "PATH="+bin+string(os.PathListSeparator)+os.Getenv("PATH")),
		places: strings.NewReplacer(places...),
	}
}

// openDir returns a folder for sockets that other users may enter.
func openDir(t *testing.T) string {
	t.Helper()
	dir := testsync.SocketDir(t)
	if err := os.Chmod(dir, 0o755); err != nil {
		t.Fatal(err)
	}
	return dir
}

const manifest = `apiVersion: v1
kind: Pod
metadata: {name: web}
spec:
  containers:
  - {name: web, image: web, readinessProbe: {httpGet: {port: 80, host: 10.0.0.7}}}
`

// configuration saves a block under the name given by the text before it, or checks it. The hash of a plugin that was just built is
// not checked.
func (r *reader) configuration(b block) {
	r.t.Helper()
	text := r.places.Replace(strings.Join(b.lines, "\n") + "\n")
	text = regexp.MustCompile(`sha256 = "[0-9a-f]*…"`).ReplaceAllString(text, "allow_unpinned = true")
	name, isFile := "block.hcl", false
	if m := savedAs.FindStringSubmatch(b.before); m != nil {
		name, isFile = m[1], true
	}
	if err := os.WriteFile(filepath.Join(r.dir, name), []byte(text), 0o644); err != nil {
		r.t.Fatal(err)
	}
	if isFile {
		return
	}
	if err := os.WriteFile(filepath.Join(r.dir, "rest.hcl"), []byte(rest), 0o644); err != nil {
		r.t.Fatal(err)
	}
	r.run("sonde validate "+name+" rest.hcl", nil)
}

// savedAs matches the text with which a document introduces a file.
var savedAs = regexp.MustCompile("[Ss]ave this as `([a-z.]+)`")

// file saves a block in another language, if the text before it gives a name.
func (r *reader) file(b block) {
	r.t.Helper()
	if m := savedAs.FindStringSubmatch(b.before); m != nil {
		text := r.places.Replace(strings.Join(b.lines, "\n") + "\n")
		if err := os.WriteFile(filepath.Join(r.dir, m[1]), []byte(text), 0o644); err != nil {
			r.t.Fatal(err)
		}
	}
}

// rest is a target that completes a configuration, since a block may lack one.
const rest = `target "rest" {
  address = "127.0.0.1"
  probe "readiness" {
    tcp { port = 80 }
  }
}
`

// console runs the commands of a block and compares their output with the lines that follow them.
func (r *reader) console(b block) {
	r.t.Helper()
	for i, line := range b.lines {
		command, isCommand := strings.CutPrefix(line, "$ ")
		if !isCommand {
			continue
		}
		rest := b.lines[i+1:]
		if end := slices.IndexFunc(rest, func(s string) bool { return strings.HasPrefix(s, "$ ") }); end >= 0 {
			rest = rest[:end]
		}
		switch dir, isCD := strings.CutPrefix(command, "cd "); {
		case isCD && filepath.IsAbs(dir):
			r.dir = r.places.Replace(dir)
		case isCD:
			r.dir = filepath.Join(r.dir, dir)
		case slices.ContainsFunc(notRunnable, func(s string) bool { return strings.HasPrefix(command, s) }):
		case strings.HasPrefix(command, "sonde run ") && strings.HasSuffix(command, " &"):
			r.runInBackground(r.places.Replace(strings.TrimSuffix(command, " &")))
		case strings.HasPrefix(command, "sonde run "):
			r.runUntilApplied(r.places.Replace(command))
		default:
			r.run(r.places.Replace(command), rest)
		}
	}
}

func (r *reader) command(line string) *exec.Cmd {
	c := exec.Command("sh", "-c", "exec "+line)
	if strings.Contains(line, "|") {
		c = exec.Command("sh", "-c", line)
	}
	c.Dir, c.Env = r.dir, r.env
	return c
}

// exitLine is the last line of an output, if it shows the command's exit code.
var exitLine = regexp.MustCompile(`^exit code ([0-9]+)$`)

// repeated are prefixes of commands that are run repeatedly until they print the shown output.
var repeated = []string{"sonde status ", "sonde explain ", "sonde probe ", "sonde plugin test "}

// run runs a command. It must succeed, unless the document shows an error or another exit code. Queries of an engine's status are
// repeated until the shown status is returned, and so are attempts, whose timeout may expire on a busy machine.
func (r *reader) run(line string, shown []string) {
	r.t.Helper()
	code := 0
	if n := len(shown); n > 0 {
		if m := exitLine.FindStringSubmatch(shown[n-1]); m != nil {
			code, _ = strconv.Atoi(m[1]) // the pattern has digits only
			shown = shown[:n-1]
		} else if strings.HasPrefix(shown[0], "error:") {
			code = 1
		}
	}
	again := slices.ContainsFunc(repeated, func(s string) bool { return strings.HasPrefix(line, s) })
	for end := time.Now().Add(testsync.Timeout); ; {
		var stdout, stderr bytes.Buffer
		c := r.command(line)
		c.Stdout, c.Stderr = &stdout, &stderr
		err := c.Run()
		got := stdout.String()
		if len(shown) > 0 && strings.HasPrefix(shown[0], "error:") {
			got = stderr.String()
		}
		matches := len(shown) == 0 || matchesShown(r.places.Replace(strings.Join(shown, "\n")), got)
		switch ended := c.ProcessState.ExitCode() == code; {
		case ended && matches:
			return
		case again && time.Now().Before(end):
		case !ended:
			r.t.Fatalf("$ %s\n%s%s%v", line, &stdout, &stderr, err)
		default:
			r.t.Errorf("$ %s\nprints\n%s\nbut shown is\n%s", line, got, strings.Join(shown, "\n"))
			return
		}
	}
}

// runUntilApplied runs an engine until it has applied its configuration.
func (r *reader) runUntilApplied(line string) {
	r.t.Helper()
	r.startEngine(line)()
}

// runInBackground runs an engine until the test ends.
func (r *reader) runInBackground(line string) {
	r.t.Helper()
	r.t.Cleanup(r.startEngine(line))
}

// startEngine starts an engine, and returns when it has applied its configuration. Stop stops it.
func (r *reader) startEngine(line string) (stop func()) {
	r.t.Helper()
	c := r.command(line)
	stderr, err := c.StderrPipe()
	if err != nil {
		r.t.Fatal(err)
	}
	if err := c.Start(); err != nil {
		r.t.Fatal(err)
	}
	var seen strings.Builder
	lines := bufio.NewScanner(stderr)
	applied := false
	for !applied && lines.Scan() {
		fmt.Fprintln(&seen, lines.Text())
		applied = strings.Contains(lines.Text(), "configuration applied")
	}
	rest := make(chan struct{})
	go func() {
		defer close(rest)
		_, _ = io.Copy(&seen, stderr)
	}()
	return func() {
		_ = c.Process.Signal(syscall.SIGTERM)
		<-rest
		if err := c.Wait(); err != nil || !applied {
			r.t.Errorf("$ %s\n%s%v", line, &seen, err)
		}
	}
}

// variable matches the parts of an output that differ from run to run.
var variable = regexp.MustCompile(`\b[0-9]+-[a-z0-9]{10}\b|[0-9]{4}-[0-9]{2}-[0-9]{2} [0-9:]{8}|[0-9][0-9.]*(ns|µs|ms|s| MiB)\b|\b[0-9a-f]{8}[0-9a-f]*…?`)

// columns matches the space between the columns of a table, whose width may differ.
var columns = regexp.MustCompile(` {2,}`)

// overloaded matches the line of sonde status that stays after the machine of the tests was briefly too busy.
var overloaded = regexp.MustCompile(`(?m)^overloaded: skipped \d+ attempts of passing probes\n`)

// matchesShown reports whether an output is as shown in a document. A line with only an ellipsis stands for any number of lines.
func matchesShown(shown, got string) bool {
	normal := func(s string) string {
		return strings.TrimSpace(columns.ReplaceAllString(variable.ReplaceAllString(s, "~"), "  "))
	}
	pattern := strings.ReplaceAll(regexp.QuoteMeta(normal(shown)), "\n…\n", "\n(?:.*\n)*")
	return regexp.MustCompile("^" + pattern + "$").MatchString(normal(overloaded.ReplaceAllString(got, "")))
}

// startDemo starts the demo service, and returns when it is ready.
func startDemo(t *testing.T, program, port string) {
	t.Helper()
	c := exec.Command(program, "-listen", "127.0.0.1:"+port, "-slow-start", "0s")
	stderr, err := c.StderrPipe()
	if err != nil {
		t.Fatal(err)
	}
	if err := c.Start(); err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() {
		_ = c.Process.Kill()
		_ = c.Wait()
	})
	for lines := bufio.NewScanner(stderr); lines.Scan(); {
		if strings.Contains(lines.Text(), "started, serving") {
			go func() { _, _ = io.Copy(io.Discard, stderr) }()
			return
		}
	}
	t.Fatal("the demo service did not start")
}

// startPong serves a line protocol that responds to each connection with PONG.
func startPong(t *testing.T) (port string) {
	t.Helper()
	l, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	served := make(chan struct{})
	go func() {
		defer close(served)
		for {
			conn, err := l.Accept()
			if err != nil {
				return
			}
			_, _ = bufio.NewReader(conn).ReadString('\n')
			_, _ = conn.Write([]byte("PONG\n"))
			_ = conn.Close()
		}
	}()
	t.Cleanup(func() {
		_ = l.Close()
		<-served
	})
	_, port, _ = net.SplitHostPort(l.Addr().String())
	return port
}

func TestAMachineThatWasBusyMatchesWhatIsShown(t *testing.T) {
	shown := "TARGET  STATE\n…\nweb     ready"
	for got, want := range map[string]bool{
		"TARGET  STATE\ndb      ready\nweb     ready\n":                                                       true,
		"TARGET  STATE\nweb     ready\noverloaded: skipped 2 attempts of passing probes\n":                    true,
		"TARGET  STATE\nweb     failing\noverloaded: skipped 2 attempts of passing probes\n":                  false,
		"TARGET  STATE\nweb     ready\ndegraded: restarts are paused, since the engine itself lacks memory\n": false,
	} {
		if matchesShown(shown, got) != want {
			t.Errorf("matches: %v, for\n%s", !want, got)
		}
	}
}
