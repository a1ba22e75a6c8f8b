package lab

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/sonde-probe/sonde/guest"
	"github.com/sonde-probe/sonde/probe"
	"github.com/sonde-probe/sonde/wasmhost"
	"github.com/sonde-probe/sonde/wasmhost/abi"
)

// Target is the target of a probe.
type Target struct {
	Address string            // default 127.0.0.1
	Ports   map[string]uint16 // named ports
}

// Way creates a probe of a target. settings is a JSON object in which durations are written "1.5s".
// Invalid settings are an error.
type Way func(t testing.TB, target Target, settings string) (Attempt, error)

// Attempt makes one attempt of a probe.
type Attempt func(timeout time.Duration) guest.Result

// Must returns an Attempt at 127.0.0.1, and fails the test if the settings are invalid.
func (w Way) Must(t testing.TB, settings string) Attempt {
	t.Helper()
	a, err := w(t, Target{}, settings)
	if err != nil {
		t.Fatal(err)
	}
	return a
}

// Refused checks that settings cause an error about one field.
func Refused(t testing.TB, way Way, settings, field string) {
	t.Helper()
	_, err := way(t, Target{}, settings)
	if got := fieldOf(err); got != field {
		t.Errorf("%s: %v, want an error about %s", settings, err, field)
	}
}

// fieldOf returns the name of the setting that an error is about.
func fieldOf(err error) string {
	var (
		plugins *guest.FieldError
		hosts   *probe.FieldError
	)
	switch {
	case errors.As(err, &plugins):
		return plugins.Field
	case errors.As(err, &hosts):
		return hosts.Field
	}
	return ""
}

// Both runs a test twice: with the plugin's function, and with the module of the tested package,
// which it builds in the same way as the author, and loads.
func Both[S any](t *testing.T, attempt func(context.Context, guest.Target[S]) guest.Result, test func(t *testing.T, way Way)) {
	t.Helper()
	t.Run("function", func(t *testing.T) { test(t, function(attempt)) })
	t.Run("module", func(t *testing.T) { test(t, module(t)) })
}

func function[S any](attempt func(context.Context, guest.Target[S]) guest.Result) Way {
	return func(t testing.TB, target Target, settings string) (Attempt, error) {
		trial, err := guest.NewTrial(attempt, target.address(), settings)
		if err != nil {
			return nil, err
		}
		t.Cleanup(trial.Close)
		for name, number := range target.Ports {
			trial.Port(name, number)
		}
		return func(timeout time.Duration) guest.Result {
			ctx, cancel := context.WithTimeout(context.Background(), timeout)
			defer cancel()
			return trial.Attempt(ctx)
		}, nil
	}
}

func (t Target) address() string {
	if t.Address == "" {
		return "127.0.0.1"
	}
	return t.Address
}

// module builds the plugin in the working directory and loads it.
func module(t *testing.T) Way {
	t.Helper()
	return With(Load(t, Build(t, ".")))
}

// Build builds a Go plugin by running it, and returns the module's path.
func Build(t testing.TB, pkg string) string {
	t.Helper()
	out := filepath.Join(t.TempDir(), "plugin.wasm")
	if text, err := exec.Command("go", "run", pkg, "-o", out).CombinedOutput(); err != nil {
		t.Fatalf("go run %s -o %s: %v\n%s", pkg, out, err, text)
	}
	return out
}

// Load loads a module and waits until it is compiled. It keeps compiled code in the user's cache,
// because compilation takes seconds.
func Load(t testing.TB, path string) *wasmhost.Plugin {
	t.Helper()
	return LoadAs(t, wasmhost.Config{Module: []byte(read(t, path)), CacheDir: cacheDir()})
}

// LoadAs loads a module with a configuration, and waits until it is compiled.
func LoadAs(t testing.TB, c wasmhost.Config) *wasmhost.Plugin {
	t.Helper()
	p, err := wasmhost.Load(c)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() {
		if err := p.Close(context.Background()); err != nil {
			t.Error(err)
		}
	})
	if err := p.Wait(t.Context()); err != nil {
		t.Fatal(err)
	}
	return p
}

// cacheDir returns the directory of compiled code for the linked version of wazero, or "", which
// disables the cache. In a test binary wazero cannot determine its own version, and would use code
// of another version.
var cacheDir = sync.OnceValue(func() string {
	const format = "{{if .Replace}}{{.Replace.Version}}{{else}}{{.Version}}{{end}}"
	version, err := exec.Command("go", "list", "-m", "-f", format, "github.com/tetratelabs/wazero").Output()
	cache, cacheErr := os.UserCacheDir()
	name := strings.TrimSpace(string(version))
	if err != nil || cacheErr != nil || name == "" { // wazero is replaced by a directory, which may change
		return ""
	}
	return filepath.Join(cache, "sonde-lab", name)
})

// With returns a Way that uses a loaded plugin.
func With(p *wasmhost.Plugin) Way {
	return func(t testing.TB, target Target, settings string) (Attempt, error) {
		values, err := valuesOf(p.Manifest().Settings, settings)
		if err != nil {
			return nil, err
		}
		h, err := p.New(values)
		if err != nil {
			return nil, err
		}
		t.Cleanup(func() { h.Close() })
		where := probe.Target{Name: "lab", Address: target.address(), Ports: target.Ports}
		return func(timeout time.Duration) guest.Result {
			ctx, cancel := context.WithTimeout(context.Background(), timeout)
			defer cancel()
			r := h.Probe(ctx, where)
			return guest.Result{Outcome: guest.Outcome(r.Outcome), Reason: string(r.Reason), Detail: r.Detail}
		}, nil
	}
}

// valuesOf decodes the JSON of settings by their types. Unknown settings remain JSON, which
// wasmhost rejects.
func valuesOf(schema []abi.Setting, text string) (map[string]any, error) {
	var given map[string]json.RawMessage
	if err := json.Unmarshal([]byte(text), &given); err != nil {
		return nil, fmt.Errorf("settings: %w", err)
	}
	values := make(map[string]any)
	for name, raw := range given {
		values[name] = raw
	}
	for _, s := range schema {
		raw, ok := given[s.Name]
		if !ok {
			continue
		}
		var err error
		if s.Type == abi.TypeBlock {
			values[s.Name], err = valuesOf(s.Block, string(raw))
		} else {
			values[s.Name], err = s.Type.Decode(raw)
		}
		if err != nil {
			return nil, &probe.FieldError{Field: s.Name, Problem: err.Error()}
		}
	}
	return values, nil
}
