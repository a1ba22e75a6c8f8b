package daemon

import (
	"bytes"
	"context"
	"log/slog"
	"net"
	"os"
	"path/filepath"
	"strconv"
	"strings"
	"testing"

	"github.com/sonde-probe/sonde/cmd/engine/internal/embedded"
	"github.com/sonde-probe/sonde/cmd/engine/internal/handlers"
	"github.com/sonde-probe/sonde/cmd/engine/internal/manifests"
	"github.com/sonde-probe/sonde/config"
	"github.com/sonde-probe/sonde/engine"
	"github.com/sonde-probe/sonde/probe"
	"github.com/sonde-probe/sonde/tests/testsync"
	"github.com/sonde-probe/sonde/tests/tier"
)

// hangUp listens on a port and closes every connection.
func hangUp(t *testing.T) (port string) {
	t.Helper()
	l, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { l.Close() })
	go func() {
		for {
			conn, err := l.Accept()
			if err != nil {
				return
			}
			conn.Close()
		}
	}()
	return strconv.Itoa(l.Addr().(*net.TCPAddr).Port)
}

func TestGRPCProbesOfPodsAreMadeByThePlugin(t *testing.T) {
	tier.Slow(t)
	if _, err := embedded.GRPC(); err != nil {
		t.Skip("the plugin has not been built: make build")
	}
	f := flags{pods: manifests.Flags{Path: t.TempDir()}}
	manifest := "{apiVersion: v1, kind: Pod, metadata: {name: rpc}, spec: {containers: [{name: app, image: i, command: [sleep, '600'], livenessProbe: {grpc: {port: " + hangUp(t) + ", service: x}}}]}}"
	if err := os.WriteFile(filepath.Join(f.pods.Path, "rpc.yaml"), []byte(manifest), 0o644); err != nil {
		t.Fatal(err)
	}
	var log bytes.Buffer
	logger := func(config.Engine) *slog.Logger { return slog.New(slog.NewTextHandler(&log, nil)) }
	p := handlers.NewPlugins(t.Context(), handlers.WaitForAll, logger)
	defer p.Close()
	loaded, diags := f.load(nil, nil, nil, p)
	if err := diags.Err(); err != nil {
		t.Fatal(err)
	}
	pods, err := f.pods.Open(probe.Mended, handlers.Silent(config.Engine{}))
	if err != nil {
		t.Fatal(err)
	}
	all := pods.Add(loaded)
	id := probe.ID{Target: "default/rpc/app", Kind: probe.Liveness}
	made, there := all.Set[id]
	if !there {
		t.Fatalf("the set is %v", all.Set)
	}
	made.Target.Name, made.Rule.Kind, made.Rule.Timeout = id.Target, id.Kind, testsync.Timeout
	if got := engine.Once(context.Background(), made); got.Outcome != probe.Failure || got.Timings.Connect == 0 {
		t.Errorf("an attempt is %+v", got)
	}
	again := handlers.NewPlugins(t.Context(), handlers.WaitForAll, logger) // a reload reuses the module
	again.Previous = p
	if _, diags := f.load(nil, nil, nil, again); diags.HasErrors() || strings.Count(log.String(), "plugin loaded") != 1 {
		t.Errorf("a reload has %v, and the log is %s", diags, log.String())
	}
}
