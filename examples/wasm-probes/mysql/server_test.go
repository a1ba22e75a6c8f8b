package main

import (
	"database/sql"
	"path/filepath"
	"syscall"
	"testing"

	"github.com/sonde-probe/sonde/examples/wasm-probes/internal/lab"
	"github.com/sonde-probe/sonde/guest"
	"github.com/sonde-probe/sonde/tests/gatewaytest"
)

// server is a MariaDB server with its data. Its user root, without a password, has all privileges.
type server struct {
	*lab.Server
	port string
}

// small is an option that reduces the data directory from 110 to 20 MB.
const small = "--innodb-log-file-size=4M"

// start creates a server's data and starts the server with options.
func start(t *testing.T, options ...string) server {
	t.Helper()
	owner := lab.Account(t, "mysql")
	dir := lab.Dir(t, owner)
	lab.Run(t, owner, "mariadb-install-db", "--no-defaults", "--datadir="+dir,
		"--auth-root-authentication-method=normal", "--skip-test-db", small)
	return serve(t, owner, dir, options...)
}

func serve(t *testing.T, owner *syscall.Credential, dir string, options ...string) server {
	t.Helper()
	port := gatewaytest.FreePort(t)
	args := append([]string{"--no-defaults", "--datadir=" + dir, "--bind-address=127.0.0.1", "--port=" + port,
		"--socket=" + filepath.Join(dir, "socket"), "--pid-file=" + filepath.Join(dir, "pid"), small}, options...)
	return server{lab.Start(t, &lab.Server{Name: "mariadbd", Args: args, Dir: dir, User: owner}), port}
}

// open returns connections as the server's root.
func (s server) open(t *testing.T) *sql.DB {
	t.Helper()
	db, err := sql.Open("mysql", "root@tcp(127.0.0.1:"+s.port+")/")
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { db.Close() })
	return db
}

// exec executes commands as the server's root.
func (s server) exec(t *testing.T, commands ...string) {
	t.Helper()
	db := s.open(t)
	for _, c := range commands {
		if _, err := db.ExecContext(t.Context(), c); err != nil {
			t.Fatalf("%s: %v", c, err)
		}
	}
}

// asks returns a probe of the server as its root. more has further settings, each after a comma.
func (s server) asks(t *testing.T, way lab.Way, more string) lab.Attempt {
	t.Helper()
	return way.Must(t, `{"port": "`+s.port+`", "user": "root"`+more+`}`)
}

// ready waits until an attempt succeeds.
func (s server) ready(t *testing.T, way lab.Way) server {
	t.Helper()
	lab.Until(t, s.asks(t, way, ""), guest.Success)
	return s
}
