package wasmhost_test

import (
	"encoding/json"
	"errors"
	"io"
	"net"
	"strings"
	"testing"
	"time"

	"github.com/sonde-probe/sonde/probe"
	"github.com/sonde-probe/sonde/tests/testsync"
	"github.com/sonde-probe/sonde/tests/tier"
	"github.com/sonde-probe/sonde/wasmhost"
	"github.com/sonde-probe/sonde/wasmhost/abi"
)

// declaring returns a module that has a schema and returns its settings as the detail.
func declaring(schema ...abi.Setting) []byte {
	module, err := abi.WriteManifest(wat(importIO+echo, abi.InputSettings), abi.Manifest{Name: "test", ABI: 1, Settings: schema})
	if err != nil {
		panic(err)
	}
	return module
}

// values is a named map type of a block, like that of package config.
type values map[string]any

func TestSettingsBecomeJSON(t *testing.T) {
	fallback := func(name string, kind abi.Type, value string) abi.Setting {
		return abi.Setting{Name: name, Type: kind, Default: json.RawMessage(value)}
	}
	p := load(t, wasmhost.Config{Module: declaring(
		fallback("s", abi.TypeString, `"a"`), fallback("i", abi.TypeInt, `1`), fallback("n", abi.TypeNumber, `0.5`),
		fallback("b", abi.TypeBool, `true`), fallback("d", abi.TypeDuration, `"1.5s"`), fallback("l", abi.TypeStrings, `["x"]`),
		fallback("m", abi.TypeMap, `{"k":"v"}`), abi.Setting{Name: "none", Type: abi.TypeInt},
		abi.Setting{Name: "block", Type: abi.TypeBlock, Block: []abi.Setting{fallback("s", abi.TypeString, `"in"`)}},
	)})
	for want, settings := range map[string]map[string]any{
		`{"b":true,"d":1500000000,"i":1,"l":["x"],"m":{"k":"v"},"n":0.5,"s":"a"}`: nil,
		`{"b":false,"block":{"s":"in"},"d":2,"i":2,"l":[],"m":{},"n":1.5,"none":3,"s":""}`: {
			"b": false, "d": 2 * time.Nanosecond, "i": int64(2), "l": []string(nil), "m": map[string]string(nil), "n": 1.5, "none": 3, "s": "", "block": values{},
		},
		`{"b":true,"block":{"s":"out"},"d":1500000000,"i":1,"l":["y"],"m":{"q":""},"n":0.5,"s":"a"}`: {
			"l": []string{"y"}, "m": map[string]string{"q": ""}, "block": values{"s": "out"},
		},
	} {
		got := attempt(t, handler(t, p, settings), probe.Target{Name: "web"}, plenty)
		if got.Detail != want {
			t.Errorf("got %s\nwant %s", got.Detail, want)
		}
	}
}

func TestSettingsOfOtherTypesAreRejected(t *testing.T) {
	for _, kind := range abi.Types() {
		p := load(t, wasmhost.Config{Module: declaring(abi.Setting{Name: "x", Type: kind, Required: true})})
		for _, v := range []any{nil, struct{}{}, []int{1}, map[int]string{}, float32(1)} {
			var wrong *probe.FieldError
			if _, err := p.New(map[string]any{"x": v}); !errors.As(err, &wrong) || wrong.Field != "x" {
				t.Errorf("%s with %#v: got %v", kind, v, err)
			}
		}
	}
}

// configuring returns a module whose check of settings returns the number that code pushes.
func configuring(code string) []byte {
	return wat("%s", meeting+` (func $configure (result i32) `+code+`) (export "sonde_configure" (func $configure))`)
}

// If a check could not be made, the settings may be valid.
func TestSettingsThatCannotBeCheckedNowAreCheckedAgain(t *testing.T) {
	p := load(t, wasmhost.Config{Module: configuring("i32.const 0"), Limits: wasmhost.Limits{Instances: 1, Start: 200 * time.Millisecond}})
	arrived, release := make(chan struct{}, 9), make(chan struct{})
	target := serve(t, func(conn net.Conn) {
		arrived <- struct{}{}
		<-release
		io.WriteString(conn, "!")
	})
	var first *wasmhost.Handler
	testsync.Until(t, "a check", func() bool {
		first = handler(t, p, nil)
		return first.Unchecked() == nil
	})
	ended := make(chan probe.Result, 1)
	go func() { ended <- attempt(t, first, target, time.Hour) }()
	testsync.Receive(t, "an attempt that has the only instance", arrived)
	h := handler(t, p, nil)
	if got := attempt(t, h, target, plenty); got.Outcome != probe.Unknown || got.Reason != wasmhost.ReasonBusy || h.Unchecked() == nil {
		t.Errorf("got %+v, %v", got, h.Unchecked())
	}
	close(release)
	wantResult(t, testsync.Receive(t, "the first attempt", ended), probe.Success, "")
	testsync.Until(t, "an attempt", func() bool { return attempt(t, h, target, plenty).Outcome == probe.Success })
	if err := h.Unchecked(); err != nil {
		t.Error(err)
	}
}

// While a module is being compiled, New does not check settings.
func TestTheFirstAttemptChecksTheSettings(t *testing.T) {
	for code, want := range map[string]probe.Reason{"i32.const 0": "", "i32.const 1": "plugin.settings"} {
		p, err := wasmhost.Load(wasmhost.Config{Module: configuring(code)})
		if err != nil {
			t.Fatal(err)
		}
		defer p.Close(t.Context())
		h, err := p.New(nil) // the module is hardly ever compiled by now
		if err != nil {
			continue
		}
		testsync.Receive(t, "the plugin", h.Ready())
		target := serve(t, func(conn net.Conn) { io.WriteString(conn, "!") })
		if got := attempt(t, h, target, plenty); got.Reason != want {
			t.Errorf("%s: got %+v, want %q", code, got, want)
		}
	}
}

// With a hanging plugin, many blocks do not each wait for a check to time out.
func TestACheckThatHangsIsMadeOnce(t *testing.T) {
	tier.Slow(t)
	p := load(t, wasmhost.Config{Module: configuring(spin + " i32.const 0"), Limits: wasmhost.Limits{Start: 2 * time.Second}})
	testsync.Until(t, "a check that hangs", func() bool { // a starved check does not count, and is repeated
		h, err := p.New(nil)
		if err == nil && h.Unchecked() == nil {
			t.Fatal("the settings are accepted")
		}
		return err != nil
	})
	if h := handler(t, p, nil); h.Unchecked() == nil {
		t.Error("it was made again at once")
	}
}

// A script may use up all memory before its first attempt.
func TestTheEndOfACheckIsDescribed(t *testing.T) {
	for code, want := range map[string]string{
		`i32.const 100 memory.grow drop unreachable`: "sonde_configure: plugin trapped at its memory limit: ",
		`call $configure`: "sonde_configure: stack overflow in the plugin",
		`unreachable`:     "sonde_configure: wasm error: unreachable",
	} {
		p := load(t, wasmhost.Config{Module: configuring(code), Limits: wasmhost.Limits{Memory: 1 << 20}})
		if _, err := p.New(nil); err == nil || !strings.Contains(err.Error(), want) {
			t.Errorf("%s: got %v, want %q", code, err, want)
		}
	}
}

func TestSettingsAreBounded(t *testing.T) {
	p := load(t, wasmhost.Config{Module: declaring(abi.Setting{Name: "x", Type: abi.TypeString})})
	if _, err := p.New(map[string]any{"x": strings.Repeat("x", 1<<20)}); err == nil || !strings.Contains(err.Error(), "at most 1048576") {
		t.Errorf("got %v", err)
	}
}

func TestTheRevisionIdentifiesSettings(t *testing.T) {
	p := load(t, wasmhost.Config{Module: wat(importIO+echo, abi.InputTarget)})
	seen := func(text string) string {
		return attempt(t, handler(t, p, map[string]any{"text": text}), probe.Target{Name: "web"}, plenty).Detail
	}
	if a, again, b := seen("a"), seen("a"), seen("b"); a != again || a == b || !strings.Contains(a, "revision=") {
		t.Errorf("got %q, %q and %q", a, again, b)
	}
}

// The grant "target" includes the target's ports, and a port that the configuration sets.
func TestThePortOfTheManifestHasToBeGranted(t *testing.T) {
	module, err := abi.WriteManifest(wat(idle), abi.Manifest{Name: "db", ABI: 1, Settings: []abi.Setting{
		{Name: "port", Type: abi.TypeString, Default: []byte(`"6379"`)},
	}})
	if err != nil {
		t.Fatal(err)
	}
	for name, test := range map[string]struct {
		dial     []string
		settings map[string]any
		ports    map[string]uint16
		want     string
	}{
		"the default":           {nil, nil, nil, `port defaults to 6379, which is not granted: set port = "6379", or add it to the target's ports`},
		"granted as the target": {[]string{"target"}, nil, map[string]uint16{"web": 80}, "which is not granted"},
		"of the target":         {nil, nil, map[string]uint16{"db": 6379}, ""},
		"written":               {nil, map[string]any{"port": "6379"}, nil, ""},
		"granted by address":    {[]string{"target", "tcp://10.0.0.0/8:6379"}, nil, nil, ""},
		"nothing is granted":    {[]string{}, nil, nil, ""},
	} {
		t.Run(name, func(t *testing.T) {
			p := load(t, wasmhost.Config{Module: module, Grant: wasmhost.Grant{Dial: test.dial}})
			err := handler(t, p, test.settings).Check(probe.Target{Name: "db", Address: "10.0.0.1", Ports: test.ports})
			if (err == nil) != (test.want == "") || err != nil && !strings.Contains(err.Error(), test.want) {
				t.Errorf("got %v, want %q", err, test.want)
			}
		})
	}
}
