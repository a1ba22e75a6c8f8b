package main

import (
	"context"
	"net"
	"os"
	"path/filepath"
	"strconv"
	"strings"
	"testing"

	"github.com/sonde-probe/sonde/adapter/kube"
	"github.com/sonde-probe/sonde/config"
	"github.com/sonde-probe/sonde/engine"
	"github.com/sonde-probe/sonde/probe"
)

// grpcModule returns the file of the grpc plugin, which is built on its own.
func grpcModule(t *testing.T) string {
	t.Helper()
	file := filepath.Join("..", "..", "examples", "wasm-probes", "grpc", "grpc.wasm")
	if _, err := os.Stat(file); err != nil {
		t.Skip("the grpc plugin has not been built: ", err)
	}
	return file
}

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
	f := runFlags{pods: podFlags{dir: t.TempDir(), grpc: grpcPlugin{file: grpcModule(t)}}}
	manifest := "{apiVersion: v1, kind: Pod, metadata: {name: rpc}, spec: {containers: [{name: app, command: [sleep, '600'], livenessProbe: {grpc: {port: " + hangUp(t) + ", service: x}}}]}}"
	if err := os.WriteFile(filepath.Join(f.pods.dir, "rpc.yaml"), []byte(manifest), 0o644); err != nil {
		t.Fatal(err)
	}
	p := newPlugins(t.Context(), waitForAll, silent)
	defer p.end()
	loaded, diags := f.load(nil, p)
	if err := diags.Err(); err != nil {
		t.Fatal(err)
	}
	pods, err := f.pods.open(silent(config.Engine{}))
	if err != nil {
		t.Fatal(err)
	}
	all := pods.into(loaded)
	id := probe.ID{Target: "default/rpc/app", Kind: probe.Liveness}
	made, there := all.Set[id]
	if !there {
		t.Fatalf("the set is %v", all.Set)
	}
	made.Target.Name, made.Rule.Kind = id.Target, id.Kind
	if got := engine.Once(context.Background(), made); got.Outcome != probe.Failure || got.Timings.Connect == 0 {
		t.Errorf("an attempt is %+v", got)
	}
	again := newPlugins(t.Context(), waitForAll, silent) // a reload takes the module over
	again.before = p
	if _, diags := f.load(nil, again); diags.HasErrors() || len(again.own) != 1 {
		t.Errorf("a reload has %d plugins, %v", len(again.own), diags)
	}
	for key, one := range again.own {
		if p.own[key] != one {
			t.Error("a reload has loaded the plugin again")
		}
	}
}

func TestAnImportWithThePluginHasItsBlock(t *testing.T) {
	name := filepath.Join("testdata", "import", "grpc-service.yaml")
	out, complaints, err := sonde(nil, "import", "--grpc-plugin", grpcModule(t), name)
	if err != nil {
		t.Fatalf("%v\n%s", err, complaints)
	}
	for _, want := range []string{"plugin \"grpc\" {\n", "  probe \"liveness\" {\n    grpc { port = 9000 }\n"} {
		if !strings.Contains(out, want) {
			t.Errorf("there is no %q in\n%s", want, out)
		}
	}
	if strings.Contains(complaints, "left out") {
		t.Errorf("it says\n%s", complaints)
	}
	web, _, err := sonde(nil, "import", "--grpc-plugin", grpcModule(t), filepath.Join("testdata", "import", "nginx-deployment.yaml"))
	if err != nil || strings.Contains(web, "plugin") {
		t.Errorf("a manifest without grpc is imported as %v\n%s", err, web)
	}
}

func TestAPluginThatIsNotThereIsRefused(t *testing.T) {
	_, _, err := sonde(nil, "import", "--grpc-plugin", "none.wasm", filepath.Join("testdata", "import", "grpc-service.yaml"))
	if err == nil || !strings.Contains(err.Error(), "--grpc-plugin: there is no file none.wasm") {
		t.Errorf("the error is %v", err)
	}
	f := runFlags{pods: podFlags{dir: t.TempDir(), grpc: grpcPlugin{file: "none.wasm"}}}
	_, diags := f.load(nil, newPlugins(t.Context(), waitNever, silent))
	if err := diags.Err(); err == nil || !strings.Contains(err.Error(), "--grpc-plugin: there is no file none.wasm") {
		t.Errorf("the error is %v", err)
	}
}

func TestAPluginsDefaultsAreGivenToIt(t *testing.T) {
	var got config.Values
	g := grpcPlugin{
		fields: []config.Field{{Name: "port", Default: "1"}, {Name: "retries", Default: int64(3)}, {Name: "service"}},
		make:   func(v config.Values, _ config.Context) (probe.Handler, error) { got = v; return nil, nil },
	}
	if _, err := g.handler(kube.GRPC{Port: "9000"}); err != nil {
		t.Fatal(err)
	}
	if len(got) != 2 || got["port"] != "9000" || got["retries"] != int64(3) {
		t.Errorf("the plugin is given %v", got)
	}
}
