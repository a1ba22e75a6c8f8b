package main

import (
	"crypto/x509"
	"encoding/pem"
	"errors"
	"fmt"
	"net"
	"net/http"
	"net/http/httptest"
	"os"
	"os/exec"
	"path/filepath"
	"strconv"
	"testing"

	"github.com/rogpeppe/go-internal/testscript"

	"github.com/sonde-probe/sonde/cmd/engine/internal/embedded"
	"github.com/sonde-probe/sonde/tests/dockertest"
	"github.com/sonde-probe/sonde/tests/gatewaytest"
	"github.com/sonde-probe/sonde/tests/program"
	"github.com/sonde-probe/sonde/tests/systemdtest"
	"github.com/sonde-probe/sonde/tests/tier"
)

func TestMain(m *testing.M) {
	testscript.Main(m, map[string]func(){"sonde": main})
}

// TestScripts runs the scripts of tests/scripts. They have additional commands, see commands, and these variables:
//
//	HTTP    address of a web server: /status/503 responds with 503, /hang does not respond
//	DEMO    the demo service's program
//	CLOSED  address without a listener
//	ECHO    port of an echo server; ECHO_ADDRESS is its address
//	PLUGINS folder of the example plugins, which the command plugin builds
//
// The condition [ci] holds in .ci/run. The condition [starlark] holds if the plugin that runs scripts was built before this
// test and the test runs without the race detector, under which compiling that plugin takes minutes.
//
// The files cert.pem and key.pem contain a self-signed certificate for 127.0.0.1 and its key.
func TestScripts(t *testing.T) {
	server := httptest.NewServer(http.HandlerFunc(answer))
	t.Cleanup(server.Close)
	demo := program.Build(t, program.Demo)
	cert, key := certificate(t)
	cache := program.Cache(t)
	plugins, err := filepath.Abs(filepath.Join("..", "..", "examples", "wasm-probes"))
	if err != nil {
		t.Fatal(err)
	}
	if asc := filepath.Join(plugins, "line-as", "node_modules", ".bin", "asc"); os.Getenv("ASC") == "" { // .ci/run installs it
		if _, err := os.Stat(asc); err == nil {
			t.Setenv("ASC", asc)
		}
	}
	dir, files := filepath.Join("..", "..", "tests", "scripts"), []string(nil)
	if testing.Short() {
		files = []string{filepath.Join(dir, "run.txtar"), filepath.Join(dir, "validate.txtar"), filepath.Join(dir, "fmt.txtar")}
		dir = ""
	}
	testscript.Run(t, testscript.Params{
		Dir:                 dir,
		Files:               files,
		Cmds:                commands(),
		RequireExplicitExec: true,
		Condition: func(cond string) (bool, error) {
			switch cond {
			case "ci":
				return tier.InCI(), nil
			case "starlark":
				_, err := embedded.Starlark()
				return err == nil && !tier.Race, nil
			}
			return false, fmt.Errorf("unknown condition %q", cond)
		},
		Setup: func(e *testscript.Env) error {
			e.Values[backgroundKey{}] = &background{}
			e.Values[runtimeKey{}] = new(*dockertest.Runtime)
			e.Values[systemKey{}] = new(*systemdtest.Manager)
			e.Values[testKey{}] = e.T().(testing.TB)
			e.Setenv("HTTP", server.Listener.Addr().String())
			e.Setenv("DEMO", demo)
			e.Setenv("PLUGINS", plugins)
			e.Setenv("GORACE", noRaceSleep)
			closed, err := gatewaytest.FindAddress()
			e.Setenv("CLOSED", closed)
			return errors.Join(err, pluginEnv(e, cache),
				os.WriteFile(filepath.Join(e.WorkDir, "cert.pem"), cert, 0o644),
				os.WriteFile(filepath.Join(e.WorkDir, "key.pem"), key, 0o600))
		},
	})
}

// noRaceSleep is GORACE for programs that should exit immediately: otherwise, a program built with -race sleeps for a second at
// its exit.
const noRaceSleep = "atexit_sleep_ms=0"

// testKey is the key of a script's test among its values.
type testKey struct{}

func testOf(ts *testscript.TestScript) testing.TB { return ts.Value(testKey{}).(testing.TB) }

// certificate returns the certificate of net/http/httptest and its key, as PEM.
func certificate(t *testing.T) (cert, key []byte) {
	t.Helper()
	server := httptest.NewTLSServer(nil)
	defer server.Close()
	der, err := x509.MarshalPKCS8PrivateKey(server.TLS.Certificates[0].PrivateKey)
	if err != nil {
		t.Fatal(err)
	}
	return pem.EncodeToMemory(&pem.Block{Type: "CERTIFICATE", Bytes: server.Certificate().Raw}),
		pem.EncodeToMemory(&pem.Block{Type: "PRIVATE KEY", Bytes: der})
}

func answer(w http.ResponseWriter, r *http.Request) {
	var status int
	if _, err := fmt.Sscanf(r.URL.Path, "/status/%d", &status); err != nil {
		<-r.Context().Done() // until the client gives up
		return
	}
	w.WriteHeader(status)
	fmt.Fprintln(w, http.StatusText(status))
}

// freePort is the script command that sets a variable to a free port.
func freePort(ts *testscript.TestScript, neg bool, args []string) {
	usage(ts, !neg && len(args) == 1, "freeport VARIABLE")
	address, err := gatewaytest.FindAddress()
	ts.Check(err)
	_, port, err := net.SplitHostPort(address)
	ts.Check(err)
	ts.Setenv(args[0], port)
}

// substitute is the script command that replaces ${VARIABLE} in files.
func substitute(ts *testscript.TestScript, neg bool, args []string) {
	usage(ts, !neg && len(args) > 0, "substitute FILE...")
	for _, name := range args {
		text := os.Expand(ts.ReadFile(name), ts.Getenv)
		ts.Check(os.WriteFile(ts.MkAbs(name), []byte(text), 0o644))
	}
}

// exitsWith is the script command that runs a program and expects an exit code.
func exitsWith(ts *testscript.TestScript, neg bool, args []string) {
	usage(ts, !neg && len(args) >= 2, "exits CODE PROGRAM [ARG...]")
	code, err := strconv.Atoi(args[0])
	ts.Check(err)
	got := 0
	if err := ts.Exec(args[1], args[2:]...); err != nil {
		exit, ok := err.(*exec.ExitError)
		usage(ts, ok, err.Error())
		got = exit.ExitCode()
	}
	if got != code {
		ts.Fatalf("exit code %d, not %d", got, code)
	}
}

func usage(ts *testscript.TestScript, ok bool, text string) {
	if !ok {
		ts.Fatalf("usage: %s", text)
	}
}
