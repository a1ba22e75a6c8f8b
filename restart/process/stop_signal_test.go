package process

import (
	"bufio"
	"encoding/binary"
	"fmt"
	"io"
	"log/slog"
	"net"
	"os"
	"os/exec"
	"os/user"
	"path/filepath"
	"strconv"
	"strings"
	"syscall"
	"testing"
	"time"

	"github.com/sonde-probe/sonde/restart"
	"github.com/sonde-probe/sonde/tests/testsync"
	"github.com/sonde-probe/sonde/tests/tier"
)

// beginWith is begin for a command with the given stop signal.
func beginWith(t *testing.T, c Config, s syscall.Signal) *running {
	t.Helper()
	log := new(testsync.Buffer)
	c.Logger, c.LinesPerSecond = slog.New(slog.NewTextHandler(log, nil)), 1000
	d := driver(t, c)
	d.SetStop(restart.StopSettings{GracePeriod: testsync.Timeout, Signal: restart.StopSignal(s)})
	l := run(t, d)
	l.log = log
	return l
}

func TestACommandThatHasJoinedAnotherGroupGetsItsStopSignal(t *testing.T) {
	if _, err := exec.LookPath("perl"); err != nil {
		t.Skip("perl is missing")
	}
	for name, join := range map[string]string{"another": "setpgrp(0, getppid()) or die;", "its own": ""} {
		t.Run(name, func(t *testing.T) {
			script := `$|=1; $SIG{USR1}=sub{exit 7}; ` + join + ` print "ready\n"; sleep 600`
			l := beginWith(t, Config{Command: []string{"perl", "-e", script}}, syscall.SIGUSR1)
			testsync.Until(t, "the command", func() bool { return strings.Contains(l.log.String(), "ready") })
			l.end <- testsync.Timeout
			if exit := l.exit(t); exit.Code != 7 {
				t.Errorf("got %+v", exit)
			}
		})
	}
}

// program returns the path of a server's program; Debian installs some outside PATH. The test runs in .ci/run.
func program(t *testing.T, name string, patterns ...string) string {
	t.Helper()
	tier.CI(t)
	if path, err := exec.LookPath(name); err == nil {
		return path
	}
	for _, pattern := range patterns {
		if found, _ := filepath.Glob(pattern); len(found) > 0 {
			return found[len(found)-1]
		}
	}
	tier.Lacks(t, name+" is not installed")
	return ""
}

// serverDir returns a directory for sockets that belongs to a user.
func serverDir(t *testing.T, owner *user.User) string {
	t.Helper()
	dir := testsync.SocketDir(t)
	if owner != nil {
		uid, _ := strconv.Atoi(owner.Uid)
		gid, _ := strconv.Atoi(owner.Gid)
		if err := os.Chown(dir, uid, gid); err != nil {
			t.Fatal(err)
		}
	}
	return dir
}

// dialUnix connects to the socket of a server once the server listens.
func dialUnix(t *testing.T, l *running, path string) (conn net.Conn) {
	t.Helper()
	for end := time.Now().Add(testsync.Timeout); conn == nil; time.Sleep(time.Millisecond) {
		var err error
		if conn, err = net.Dial("unix", path); err != nil && time.Now().After(end) {
			t.Fatalf("%v; its output is:\n%s", err, l.log.String())
		}
	}
	t.Cleanup(func() { conn.Close() })
	_ = conn.SetDeadline(time.Now().Add(testsync.Timeout))
	return conn
}

func TestTheStopSignalComesFirst(t *testing.T) {
	for _, s := range []syscall.Signal{0, syscall.SIGTERM, syscall.SIGINT, syscall.SIGQUIT, syscall.SIGUSR1} {
		t.Run(restart.StopSignal(s).String(), func(t *testing.T) {
			l := beginWith(t, sh(`for s in TERM INT QUIT USR1; do trap "echo got $s; exit 9" $s; done; echo ready; while :; do sleep 0.01; done`), s)
			l.await(t, "ready")
			l.end <- testsync.Timeout
			want := "got TERM"
			if s != 0 {
				want = "got " + strings.TrimPrefix(restart.StopSignal(s).String(), "SIG")
			}
			if exit := l.exit(t); exit.Code != 9 || !strings.Contains(exit.Output, want) {
				t.Errorf("the exit is %+v, want code 9 after %q", exit, want)
			}
		})
	}
}

func TestAChangeOfTheStopSignalNeedsNoRestart(t *testing.T) {
	log := new(testsync.Buffer)
	c := sh(`trap "echo got int; exit 9" INT; echo ready; while :; do sleep 0.01; done`)
	c.Logger = slog.New(slog.NewTextHandler(log, nil))
	d := driver(t, c)
	l := run(t, d)
	l.log = log
	l.await(t, "ready")
	d.SetStop(restart.StopSettings{GracePeriod: time.Minute, Signal: restart.StopSignal(syscall.SIGINT)})
	l.end <- testsync.Timeout
	if exit := l.exit(t); exit.Code != 9 {
		t.Errorf("the exit is %+v", exit)
	}
}

func TestACommandThatIgnoresItsStopSignalIsKilledAfterItsGrace(t *testing.T) {
	l := beginWith(t, sh(`trap '' INT; echo ready; while :; do sleep 0.01; done`), syscall.SIGINT)
	l.await(t, "ready")
	l.end <- 50 * time.Millisecond
	if exit := l.exit(t); exit.Code != 137 {
		t.Errorf("the exit is %+v", exit)
	}
}

// nginxBody is larger than the socket buffers between nginx and its client.
const nginxBody = 32 << 20

func TestNginxStopsGracefullyWithAClientConnected(t *testing.T) {
	nginx := program(t, "nginx", "/usr/sbin/nginx")
	dir := serverDir(t, nil)
	text := fmt.Sprintf(`
daemon off; worker_processes 1; pid %[1]s/pid; error_log stderr notice; %[2]s
events {}
http {
  access_log off; client_body_temp_path %[1]s/1; proxy_temp_path %[1]s/2; fastcgi_temp_path %[1]s/3; uwsgi_temp_path %[1]s/4; scgi_temp_path %[1]s/5;
  server { listen unix:%[1]s/socket; root %[1]s; }
}`, dir, map[bool]string{true: "user root;"}[os.Geteuid() == 0])
	for name, content := range map[string]string{"nginx.conf": text, "body": strings.Repeat("x", nginxBody)} {
		if err := os.WriteFile(filepath.Join(dir, name), []byte(content), 0o644); err != nil {
			t.Fatal(err)
		}
	}
	l := beginWith(t, Config{Command: []string{nginx, "-c", filepath.Join(dir, "nginx.conf"), "-e", "stderr"}}, syscall.SIGQUIT)
	client := dialUnix(t, l, filepath.Join(dir, "socket"))
	fmt.Fprintf(client, "GET /body HTTP/1.0\r\n\r\n")
	response := bufio.NewReader(client)
	if line, err := response.ReadString('\n'); err != nil || !strings.Contains(line, "200") {
		t.Fatalf("%q, %v", line, err)
	}
	l.end <- testsync.Timeout
	l.await(t, "gracefully shutting down")
	rest, err := io.Copy(io.Discard, response)
	if err != nil || rest < nginxBody {
		t.Errorf("the client got %d bytes, %v", rest, err)
	}
	if exit := l.exit(t); exit.Code != 0 {
		t.Errorf("the exit is %+v", exit)
	}
}

func TestPostgreSQLShutsDownFastWithAClientConnected(t *testing.T) {
	postgres := program(t, "postgres", "/usr/lib/postgresql/*/bin/postgres")
	initdb := program(t, "initdb", "/usr/lib/postgresql/*/bin/initdb")
	owner, err := user.Lookup("postgres")
	if err != nil {
		tier.Lacks(t, "there is no user postgres")
	}
	if os.Geteuid() != 0 {
		t.Skip("only root can run PostgreSQL as the user postgres")
	}
	data := serverDir(t, owner)
	if exit := begin(t, Config{Command: []string{initdb, "-D", data, "--auth=trust", "--no-sync", "--locale=C"}, User: "postgres"}).exit(t); exit.Code != 0 || exit.Err != nil {
		t.Fatalf("initdb: %+v", exit)
	}
	l := beginWith(t, Config{Command: []string{postgres, "-D", data, "-c", "listen_addresses=", "-k", data, "-F"}, User: "postgres"}, syscall.SIGINT)
	l.await(t, "ready to accept connections")
	logIn(t, dialUnix(t, l, filepath.Join(data, ".s.PGSQL.5432")))
	l.end <- testsync.Timeout
	if exit := l.exit(t); exit.Code != 0 {
		t.Errorf("the exit is %+v", exit)
	}
	for _, want := range []string{"received fast shutdown request", "terminating connection due to administrator command", "database system is shut down"} {
		if !strings.Contains(l.log.String(), want) {
			t.Errorf("PostgreSQL has not logged %q:\n%s", want, l.log.String())
		}
	}
}

// logIn opens a session of PostgreSQL, and returns when the session is ready for queries.
func logIn(t *testing.T, conn net.Conn) {
	t.Helper()
	startup := append([]byte{0, 0, 0, 0, 0, 3, 0, 0}, "user\x00postgres\x00database\x00postgres\x00\x00"...)
	binary.BigEndian.PutUint32(startup, uint32(len(startup)))
	if _, err := conn.Write(startup); err != nil {
		t.Fatal(err)
	}
	for head := make([]byte, 5); head[0] != 'Z'; {
		if _, err := io.ReadFull(conn, head); err != nil {
			t.Fatalf("PostgreSQL does not accept the session: %v", err)
		}
		if _, err := io.CopyN(io.Discard, conn, int64(binary.BigEndian.Uint32(head[1:]))-4); err != nil {
			t.Fatal(err)
		}
	}
}
