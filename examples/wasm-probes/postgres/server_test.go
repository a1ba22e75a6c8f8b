package main

import (
	"context"
	"os/exec"
	"path/filepath"
	"syscall"
	"testing"

	"github.com/jackc/pgx/v5/pgconn"

	"github.com/sonde-probe/sonde/examples/wasm-probes/internal/lab"
	"github.com/sonde-probe/sonde/guest"
	"github.com/sonde-probe/sonde/tests/gatewaytest"
	"github.com/sonde-probe/sonde/tests/tier"
)

// cluster is a PostgreSQL server with its data. It has a superuser called postgres with the
// password "geheim".
type cluster struct {
	*lab.Server
	port  string
	owner *syscall.Credential
}

// program returns the path of a PostgreSQL program. Debian does not install these programs on PATH.
// Tests that call it run in .ci/run, not in make test.
func program(t *testing.T, name string) string {
	t.Helper()
	tier.CI(t)
	if path, err := exec.LookPath(name); err == nil {
		return path
	}
	found, err := filepath.Glob("/usr/lib/postgresql/*/bin/" + name)
	if err != nil || len(found) == 0 {
		tier.Lacks(t, name+" of PostgreSQL is not installed")
	}
	return found[len(found)-1]
}

// ways has the authentication methods: SCRAM, MD5 if the password was stored that way, or
// cleartext.
const ways = `
	host all         clear 127.0.0.1/32 password
	host all         all   127.0.0.1/32 md5
	host replication all   127.0.0.1/32 scram-sha-256
`

// start creates a cluster and starts it with settings such as "ssl=on".
func start(t *testing.T, settings ...string) cluster {
	t.Helper()
	owner := lab.Account(t, "postgres")
	dir := lab.Dir(t, owner)
	password := filepath.Join(lab.Dir(t, owner), "password")
	lab.File(t, owner, password, "geheim\n")
	lab.Run(t, owner, program(t, "initdb"), "-D", dir, "--username=postgres", "--pwfile="+password,
		"--auth=trust", "--no-sync", "--locale=C", "--encoding=UTF8")
	lab.File(t, owner, filepath.Join(dir, "pg_hba.conf"), ways)
	return serve(t, owner, dir, settings...)
}

// standbyOf copies a cluster and starts the copy, which follows the first one.
func standbyOf(t *testing.T, c cluster, settings ...string) cluster {
	t.Helper()
	dir := lab.Dir(t, c.owner)
	lab.Run(t, c.owner, program(t, "pg_basebackup"), "-D", dir, "-d", c.url("postgres", "geheim", "postgres"),
		"--checkpoint=fast", "--write-recovery-conf", "--no-sync")
	return serve(t, c.owner, dir, settings...)
}

func serve(t *testing.T, owner *syscall.Credential, dir string, settings ...string) cluster {
	t.Helper()
	port := gatewaytest.FreePort(t)
	args := []string{"-D", dir, "-h", "127.0.0.1", "-p", port, "-k", dir, "-F", "-c", "wal_retrieve_retry_interval=100ms"}
	for _, s := range settings {
		args = append(args, "-c", s)
	}
	// SIGQUIT terminates the server and its children at once, and leaves no shared memory behind.
	s := lab.Start(t, &lab.Server{Name: program(t, "postgres"), Args: args, Dir: dir, User: owner, End: syscall.SIGQUIT})
	return cluster{s, port, owner}
}

func (c cluster) url(user, password, database string) string {
	return "postgres://" + user + ":" + password + "@127.0.0.1:" + c.port + "/" + database + "?sslmode=disable"
}

// exec executes commands as the superuser.
func (c cluster) exec(t *testing.T, sql string) {
	t.Helper()
	conn := c.login(t)
	defer conn.Close(context.Background())
	if _, err := conn.Exec(t.Context(), sql).ReadAll(); err != nil {
		t.Fatalf("%s: %v", sql, err)
	}
}

func (c cluster) login(t *testing.T) *pgconn.PgConn {
	t.Helper()
	conn, err := pgconn.Connect(t.Context(), c.url("postgres", "geheim", "postgres"))
	if err != nil {
		t.Fatal(err)
	}
	return conn
}

// asks returns a probe of the server as its superuser. more has further settings, each after a
// comma.
func (c cluster) asks(t *testing.T, way lab.Way, more string) lab.Attempt {
	t.Helper()
	return way.Must(t, `{"port": "`+c.port+`", "user": "postgres", "password": "geheim"`+more+`}`)
}

// ready waits until an attempt succeeds.
func (c cluster) ready(t *testing.T, way lab.Way) cluster {
	t.Helper()
	lab.Until(t, c.asks(t, way, ""), guest.Success)
	return c
}
