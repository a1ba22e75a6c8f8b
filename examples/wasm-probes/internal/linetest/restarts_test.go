package linetest

import (
	"fmt"
	"os"
	"path/filepath"
	"strconv"
	"testing"
	"time"

	"github.com/sonde-probe/sonde/examples/wasm-probes/internal/lab"
	"github.com/sonde-probe/sonde/guest"
	"github.com/sonde-probe/sonde/tests/gatewaytest"
	"github.com/sonde-probe/sonde/wasmhost"
)

// testRestarts freezes, stops and restarts Redis, which has a line protocol.
func testRestarts(t *testing.T, p *wasmhost.Plugin) {
	port := gatewaytest.FreePort(t)
	server := lab.Start(t, &lab.Server{
		Name: "redis-server", Dir: t.TempDir(), Args: []string{"--bind", "127.0.0.1", "--port", port, "--save", ""},
	})
	ask := fmt.Sprintf(`"port": %q, "send": "PING", "expect": "+PONG"`, port)
	way := lab.With(p)
	restarts(t, server, way.Must(t, "{"+ask+"}"), "tcp.refused")
	restarts(t, server, way.Must(t, "{"+ask+`, "keep": true}`), "tcp.closed")
}

// restarts checks the attempts. The first attempt after the server has exited must have the reason
// gone: a held connection is closed by then.
func restarts(t *testing.T, server *lab.Server, a lab.Attempt, gone string) {
	t.Helper()
	lab.Until(t, a, guest.Success)
	server.Freeze()
	lab.TimesOut(t, a, 300*time.Millisecond, "line.timeout")
	server.Thaw()
	lab.Until(t, a, guest.Success)
	server.Kill()
	lab.Expect(t, a, guest.Failure, gone)
	lab.Expect(t, a, guest.Failure, "tcp.refused")
	server.Restart()
	lab.Until(t, a, guest.Success)
}

// testRules runs the conformance kit.
func testRules(t *testing.T, module []byte) {
	file := filepath.Join(t.TempDir(), "line.wasm")
	if err := os.WriteFile(file, module, 0o600); err != nil {
		t.Fatal(err)
	}
	target := serve(t, says("", func(string) string { return "+PONG\r\n" }))
	lab.Conforms(t, file, strconv.Itoa(int(target.Ports["line"])), `{"send": "PING", "expect": "+PONG"}`)
}
