package wasmhost_test

import (
	"bytes"
	"log/slog"
	"runtime"
	"strconv"
	"strings"
	"testing"

	"github.com/sonde-probe/sonde/probe"
	"github.com/sonde-probe/sonde/tests/testsync"
	"github.com/sonde-probe/sonde/wasmhost"
	"github.com/sonde-probe/sonde/wasmhost/abi"
)

// preparing is a module whose check of settings prepares their first bytes, as many as the argument
// of the format, and whose attempts report the prepared data. An attempt cannot prepare data.
const preparing = importInput + importOutput + `(memory 8)
	(func $configure (result i32)
		i32.const 1 i32.const 1000 i32.const 1000 call $input drop
		i32.const 5 i32.const 1000 i32.const %d call $output drop i32.const 0)
	(func $run (result i32) (local $n i32)
		i32.const 5 i32.const 0 i32.const 1 call $output i32.const -1 i32.gt_s if i32.const 3 return end
		i32.const 5 i32.const 1000 i32.const 300000 call $input local.set $n
		i32.const 1 i32.const 1000 local.get $n call $output drop i32.const 1)
	(export "sonde_configure" (func $configure))`

// Data prepared by a handler's check of settings is passed to the attempts of this handler and of
// handlers that share its settings, and to no others.
func TestAttemptsGetWhatWasPreparedForTheirSettings(t *testing.T) {
	p := load(t, wasmhost.Config{Module: wat(preparing, 15), Limits: wasmhost.Limits{Instances: 1}})
	first, second := handler(t, p, map[string]any{"text": "first"}), handler(t, p, map[string]any{"text": "other"})
	for want, h := range map[string]probe.Handler{`{"text":"first"`: first, `{"text":"other"`: second} {
		for _, h := range []probe.Handler{h, h.(*wasmhost.Handler).ForProbe()} {
			if got := attempt(t, h, probe.Target{Name: "web"}, plenty); got.Outcome != probe.Success || got.Detail != want {
				t.Errorf("got %v %q: %s, want %s", got.Outcome, got.Reason, got.Detail, want)
			}
		}
	}
}

// Prepared data is limited in size, counts as the plugin's memory while a handler uses it, and is
// discarded if there is no memory.
func TestWhatIsPreparedIsBounded(t *testing.T) {
	wantPrepared := func(h probe.Handler, want bool) {
		t.Helper()
		got := attempt(t, h, probe.Target{Name: "web"}, plenty)
		if got.Outcome != probe.Success || strings.HasPrefix(got.Detail, "{") != want {
			t.Errorf("got %v %q: %s", got.Outcome, got.Reason, got.Detail)
		}
	}
	var log bytes.Buffer
	logger := slog.New(slog.NewTextHandler(&log, nil))
	wantLogged := func(text string) {
		t.Helper()
		if !strings.Contains(log.String(), text) {
			t.Errorf("%q is not logged: %s", text, log.String())
		}
		log.Reset()
	}
	wantPrepared(handler(t, load(t, wasmhost.Config{Module: wat(preparing, abi.MaxPrepared+1), Logger: logger}), nil), false)
	wantLogged("bytes=262145 max=262144")

	const size = 100 << 10
	p := load(t, wasmhost.Config{Module: wat(preparing, size)})
	h, err := p.New(nil)
	if err != nil {
		t.Fatal(err)
	}
	wantPrepared(h, true)
	with := p.Stats().Memory
	h.Close()
	testsync.Until(t, "the memory of a handler that is not used any more", func() bool {
		runtime.GC()
		return p.Stats().Memory == with-size
	})

	var handlers []probe.Handler
	for n := range 3 { // the prepared data contains only a part of these long settings
		handlers = append(handlers, handler(t, p, map[string]any{"text": strings.Repeat(strconv.Itoa(n), 2000)}))
		if got := p.Stats().Memory; got != with {
			t.Errorf("%d checks that prepare the same: %d bytes are counted, %d without the checks", n+1, got, with-size)
		}
	}
	runtime.KeepAlive(handlers)

	wasmhost.SetTotalMemory(1) // the first instance of a plugin may exceed it
	t.Cleanup(func() { wasmhost.SetTotalMemory(wasmhost.DefaultTotalMemory) })
	wantPrepared(handler(t, load(t, wasmhost.Config{Module: wat(preparing, size), Logger: logger}), nil), false)
	wantLogged("bytes=102400 error=")
}
