package wasmhost_test

import (
	"context"
	"log/slog"
	"net"
	"strings"
	"testing"

	"github.com/sonde-probe/sonde/probe"
	"github.com/sonde-probe/sonde/wasmhost"
)

// trapAtB returns a module that traps on the response "B", and succeeds on any other.
func trapAtB() []byte {
	return wat(`%s (func $run (result i32) (local $fd i32) %s local.tee $fd i32.const 0 i32.lt_s if i32.const 3 return end
		local.get $fd i32.const 64 i32.const 1 call $read i32.const 1 i32.ne if i32.const 3 return end
		i32.const 64 i32.load8_u i32.const 66 i32.eq if unreachable end
		local.get $fd call $close drop i32.const 1)`, importNet, dial)
}

// TestAPluginIsSuspendedWithoutOthersOfItsModule makes one plugin trap at its targets until it is suspended.
// Another plugin of the same module must continue, whether it shares the instances or is loaded separately, like
// two plugin blocks of one file.
func TestAPluginIsSuspendedWithoutOthersOfItsModule(t *testing.T) {
	bad := serve(t, func(c net.Conn) { c.Write([]byte("B")) })
	good := serve(t, func(c net.Conn) { c.Write([]byte("G")) })
	var log strings.Builder
	c := wasmhost.Config{Module: trapAtB(), Name: "a", Logger: slog.New(slog.NewTextHandler(&log, nil))}
	first := load(t, c)
	c.Name, c.Logger = "d", nil
	for name, plugins := range map[string][2]*wasmhost.Plugin{
		"shares":     {first.Share("b"), first.Share("c")},
		"two blocks": {first, load(t, c)},
	} {
		t.Run(name, func(t *testing.T) {
			suspended, other := plugins[0], plugins[1]
			for range 5 {
				wantResult(t, attempt(t, handler(t, suspended, nil), bad, plenty), probe.Unknown, "plugin.trap")
			}
			wantResult(t, attempt(t, handler(t, suspended, nil), good, plenty), probe.Unknown, "plugin.suspended")
			wantResult(t, attempt(t, handler(t, other, nil), good, plenty), probe.Success, "")
			if s := suspended.Stats(); s.Attempts != 5 || s.Errors["plugin.trap"] != 5 || s.Suspensions != 1 {
				t.Errorf("the plugin that traps: %+v", s)
			}
			if s := other.Stats(); s.Attempts != 1 || len(s.Errors) != 0 || s.Suspensions != 0 {
				t.Errorf("the other one: %+v", s)
			}
			if err := suspended.Close(context.Background()); err != nil {
				t.Error(err)
			}
			wantResult(t, attempt(t, handler(t, other, nil), good, plenty), probe.Success, "")
			if err := other.Close(context.Background()); err != nil {
				t.Error(err)
			}
		})
	}
	if text := log.String(); !strings.Contains(text, "plugin=b target=") || strings.Contains(text, "plugin=c") {
		t.Errorf("logged:\n%s", text)
	}
}
