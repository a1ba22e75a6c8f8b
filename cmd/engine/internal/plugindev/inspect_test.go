package plugindev

import (
	"io"
	"os"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"github.com/sonde-probe/sonde/cmd/engine/internal/handlers"
	"github.com/sonde-probe/sonde/config"
	"github.com/sonde-probe/sonde/probe"
	"github.com/sonde-probe/sonde/tests/wattest"
	"github.com/sonde-probe/sonde/wasmhost"
	"github.com/sonde-probe/sonde/wasmhost/abi"
)

// moduleOf returns a plugin whose sonde_run has the given body.
func moduleOf(t *testing.T, imports, body string) []byte {
	t.Helper()
	module, err := abi.WriteManifest(wattest.Assemble(imports+`(memory 1) (func $run (result i32) `+body+`)
		(export "memory" (memory 0)) (export "sonde_abi_v1" (func $run)) (export "sonde_run" (func $run))`), abi.Manifest{Name: "steady", ABI: 1})
	if err != nil {
		t.Fatal(err)
	}
	return module
}

// Inspect and commands that check a configuration, such as validate, agree on which modules an engine accepts.
func TestInspectAndValidateAgree(t *testing.T) {
	t.Setenv("XDG_CACHE_HOME", t.TempDir())
	for name, test := range map[string]struct {
		module  []byte
		problem string
	}{
		"a plugin":             {moduleOf(t, "", "i32.const 1"), ""},
		"an unknown import":    {moduleOf(t, `(import "sonde_v1" "fly" (func $fly))`, "i32.const 1"), `imports unknown function "sonde_v1.fly"`},
		"code of a wrong type": {moduleOf(t, "", "i64.const 1"), "compile"},
	} {
		t.Run(name, func(t *testing.T) {
			file := filepath.Join(t.TempDir(), "steady.wasm")
			if err := os.WriteFile(file, test.module, 0o600); err != nil {
				t.Fatal(err)
			}
			c := inspectCommand()
			var shown strings.Builder
			c.SetArgs([]string{file})
			c.SetOut(&shown)
			c.SetErr(io.Discard)
			c.SilenceErrors, c.SilenceUsage = true, true
			inspected := c.ExecuteContext(t.Context())
			p := handlers.NewPlugins(t.Context(), handlers.WaitForChecks, handlers.Silent)
			defer p.Close()
			_, validated := p.Handler(config.Engine{}, config.Plugin{Name: "steady", Source: file}, test.module)
			for command, err := range map[string]error{"inspect": inspected, "validate": validated} {
				if (err != nil) != (test.problem != "") || err != nil && !strings.Contains(err.Error(), test.problem) {
					t.Errorf("%s says %v, want %q", command, err, test.problem)
				}
			}
			if !strings.Contains(shown.String(), "sha256") {
				t.Errorf("inspect shows %q", shown.String())
			}
		})
	}
}

// The first attempt of a plugin is made even if its instances take longer to start than half of the timeout.
func TestAnAttemptWaitsForTheStartOfAnInstance(t *testing.T) {
	module := moduleOf(t, `(func $start (local $n i32) loop local.get $n i32.const 1 i32.add local.tee $n i32.const 200000000 i32.lt_s br_if 0 end)
		(export "_initialize" (func $start))`, "i32.const 1")
	p, err := wasmhost.Load(wasmhost.Config{Module: module, Limits: wasmhost.Limits{Start: time.Minute}})
	if err != nil {
		t.Fatal(err)
	}
	defer p.Close(t.Context())
	if err := p.Wait(t.Context()); err != nil {
		t.Fatal(err)
	}
	h, err := p.New(nil)
	if err != nil {
		t.Fatal(err)
	}
	defer h.Close()
	if r := attemptOnce(t.Context(), h, probe.Target{Name: "try"}, 20*time.Millisecond); r.Outcome != probe.Success {
		t.Errorf("got %+v", r)
	}
}
