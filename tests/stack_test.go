package tests

import (
	"bufio"
	"bytes"
	"encoding/json"
	"fmt"
	"io"
	"net"
	"net/http"
	"os"
	"os/exec"
	"path/filepath"
	"regexp"
	"slices"
	"strings"
	"syscall"
	"testing"

	"github.com/sonde-probe/sonde/tests/testsync"
	"github.com/sonde-probe/sonde/tests/tier"
)

// stackGuide supervises a stack of real servers.
const stackGuide = "../docs/supervise.md"

// stackPorts are the ports that the guide names.
var stackPorts = []string{"15432", "16379", "18000", "18001", "18002", "18003"}

// needStack is called by tests that start the stack, which run only in .ci/run.
func needStack(t *testing.T) {
	t.Helper()
	tier.CI(t)
	if os.Geteuid() != 0 {
		t.Skip("only root can start servers as their users")
	}
	for _, name := range []string{"/usr/sbin/nginx", "/usr/lib/postgresql/*/bin/postgres", "/usr/bin/pg_isready", "/usr/bin/psql", "/usr/bin/redis-server", "/usr/bin/python3"} {
		if found, _ := filepath.Glob(name); len(found) == 0 {
			tier.Lacks(t, name+" is missing")
		}
	}
}

// clientBody is a size that exceeds the buffers between nginx and its client.
const clientBody = 32 << 20

// spammed is the number of lines that the spammer writes, in a second or two.
const spammed = 400_000

// neighbours are a spammer, and a program whose lines must not be lost because of it.
const neighbours = `
target "spam" {
  process {
    command          = ["sh", "-c", "yes 0123456789 | head -n %d"]
    lines_per_second = 10
  }
  restart_policy = "never"
}

target "quiet" {
  process { command = ["sh", "-c", "i=0; while [ $i -lt 100 ]; do i=$((i+1)); echo tick $i of 100; sleep 0.02; done; exit 3"] }
  restart_policy = "never"
}
`

// The engine of the guide's stack is stopped while clients are connected to PostgreSQL and nginx.
func TestAStackStartsInOrderAndStopsInReverse(t *testing.T) {
	needStack(t)
	s := startStack(t)
	for target, state := range map[string]string{"nginx": "ready", "postgres": "ready", "redis": "ready", "app/b": "ready", "spam": "completed", "quiet": "exited"} {
		s.await(target, state)
	}
	if status := s.target("initdb").Instance.ExitStatus; status == nil || *status != 0 {
		t.Errorf("the exit status of initdb is %v", status)
	}
	if status := s.target("quiet").Instance.ExitStatus; status == nil || *status != 3 {
		t.Errorf("the exit status of quiet is %v", status)
	}
	s.inOrder("instance started", "initdb", "postgres", "app/a", "nginx")
	s.inOrder("instance started", "redis", "app/c", "nginx")

	session := s.session()
	download := s.download()
	if err := s.engine.Process.Signal(syscall.SIGTERM); err != nil {
		t.Fatal(err)
	}
	testsync.Until(t, "nginx to shut down", func() bool { return strings.Contains(s.file("nginx.log"), "gracefully shutting down") })
	if n, err := io.Copy(io.Discard, download); err != nil || n != clientBody {
		t.Errorf("the client of nginx got %d bytes of %d: %v", n, clientBody, err)
	}
	if err := s.engine.Wait(); err != nil {
		t.Errorf("the engine: %v\n%s", err, s.log.String())
	}
	_ = session.Wait() // PostgreSQL has closed it
	for _, want := range []string{"received fast shutdown request", "terminating connection due to administrator command", "database system is shut down"} {
		if !strings.Contains(s.file("postgres.log"), want) {
			t.Errorf("PostgreSQL has not logged %q:\n%s", want, s.file("postgres.log"))
		}
	}
	s.inOrder("instance exited", "nginx", "app/b", "postgres")
	s.inOrder("instance exited", "nginx", "app/c", "redis")
	s.linesAreCounted()
}

// stack is the stack of the guide, plus neighbours, under an engine.
type stack struct {
	*reader
	engine *exec.Cmd
	log    *testsync.Buffer
	api    string
	lost   uint64 // lines of the spammer
}

// startStack starts the stack.
func startStack(t *testing.T) *stack {
	t.Helper()
	r := newReader(t)
	for _, b := range blocksOf(readText(t, stackGuide)) {
		switch {
		case b.lang == "console" && strings.HasPrefix(b.lines[0], "$ apt-get"):
			r.console(b)
		case b.lang == "hcl":
			r.configuration(b)
		case b.lang != "console":
			r.file(b)
		}
	}
	for name, text := range map[string]string{"neighbours.hcl": fmt.Sprintf(neighbours, spammed), "app/body": strings.Repeat("x", clientBody)} {
		if err := os.WriteFile(filepath.Join(r.dir, name), []byte(text), 0o644); err != nil {
			t.Fatal(err)
		}
	}
	s := &stack{reader: r, log: new(testsync.Buffer), api: r.places.Replace("http://127.0.0.1:9660")}
	s.engine = r.command("sonde run shop.hcl neighbours.hcl")
	s.engine.Stderr = s.log
	if err := s.engine.Start(); err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { _ = s.engine.Process.Kill() }) // it kills everything that it has started
	return s
}

// target returns a target as shown by the API.
func (s *stack) target(name string) (t struct {
	State    string
	Instance struct {
		ExitStatus *int
	}
	Process struct {
		DroppedLines uint64
	}
}) {
	response, err := http.Get(s.api + "/v1/targets/" + strings.ReplaceAll(name, "/", "%2F"))
	if err != nil {
		return t
	}
	defer response.Body.Close()
	_ = json.NewDecoder(response.Body).Decode(&t) // await retries
	return t
}

func (s *stack) await(target, state string) {
	s.t.Helper()
	testsync.Until(s.t, target+" to be "+state, func() bool { return s.target(target).State == state })
	if target == "spam" {
		s.lost = s.target(target).Process.DroppedLines
	}
}

func (s *stack) file(name string) string {
	text, _ := os.ReadFile(filepath.Join(s.dir, name)) // "" before it exists
	return string(text)
}

// inOrder checks the order of the first log records with a message about some targets.
func (s *stack) inOrder(message string, targets ...string) {
	s.t.Helper()
	log, at := s.log.String(), []int(nil)
	for _, target := range targets {
		found := regexp.MustCompile(`(?m)^.*"msg":"` + message + `[^"]*","target":"` + target + `",.*$`).FindStringIndex(log)
		if found == nil {
			s.t.Errorf("there is no %q of %s in the log:\n%s", message, target, log)
			return
		}
		at = append(at, found[0])
	}
	if !slices.IsSorted(at) {
		s.t.Errorf("%q is not in the order %q:\n%s", message, targets, log)
	}
}

// session returns a psql client that is logged in to PostgreSQL.
func (s *stack) session() *exec.Cmd {
	s.t.Helper()
	client := s.command(s.places.Replace("psql -h 127.0.0.1 -p 15432 -U shop -At -c 'select 42' -c 'select pg_sleep(600)' postgres"))
	out, err := client.StdoutPipe()
	if err != nil {
		s.t.Fatal(err)
	}
	if err := client.Start(); err != nil {
		s.t.Fatal(err)
	}
	s.t.Cleanup(func() { _ = client.Process.Kill() })
	if line, err := bufio.NewReader(out).ReadString('\n'); line != "42\n" {
		s.t.Fatalf("psql has printed %q: %v", line, err)
	}
	return client
}

// download returns the body of a response from nginx; the client has only read the head.
func (s *stack) download() io.Reader {
	s.t.Helper()
	conn, err := net.Dial("tcp", s.places.Replace("127.0.0.1:18000"))
	if err != nil {
		s.t.Fatal(err)
	}
	s.t.Cleanup(func() { conn.Close() })
	fmt.Fprintf(conn, "GET /body HTTP/1.0\r\n\r\n")
	response, err := http.ReadResponse(bufio.NewReader(conn), nil)
	if err != nil || response.StatusCode != 200 {
		s.t.Fatalf("%v, %v", response, err)
	}
	return response.Body
}

// linesAreCounted checks that each line of the spammer is in the log or counted as dropped, and that the other program has lost
// none.
func (s *stack) linesAreCounted() {
	s.t.Helper()
	kept := uint64(0)
	log := []byte(s.log.String())
	for line := range bytes.Lines(log) {
		if bytes.Contains(line, []byte("0123456789")) && bytes.Contains(line, []byte(`"target":"spam"`)) {
			kept++
		}
	}
	if s.lost == 0 || kept+s.lost != spammed {
		s.t.Errorf("of %d lines of the spammer %d were kept and %d counted as dropped", spammed, kept, s.lost)
	}
	for i := 1; i <= 100; i++ {
		if !bytes.Contains(log, fmt.Appendf(nil, "tick %d of 100", i)) {
			s.t.Errorf("the line tick %d is missing", i)
		}
	}
}
