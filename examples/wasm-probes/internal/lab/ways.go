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

// Way makes a probe of a target. The settings are a JSON object with durations as in
// "1.5s". Wrong settings are an error.
type Way func(t testing.TB, target Target, settings string) (Attempt, error)

// Attempt makes one attempt of a probe.
type Attempt func(timeout time.Duration) guest.Result

// Must returns a probe of 127.0.0.1 whose settings must be valid.
func (w Way) Must(t testing.TB, settings string) Attempt {
	t.Helper()
	a, err := w(t, Target{}, settings)
	if err != nil {
		t.Fatal(err)
	}
	return a
}

// Refused checks that settings give an error about one field.
func Refused(t testing.TB, way Way, settings, field string) {
	t.Helper()
	_, err := way(t, Target{}, settings)
	if got := fieldOf(err); got != field {
		t.Errorf("%s: %v, want an error about %s", settings, err, field)
	}
}

// fieldOf returns the setting that an error is about.
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

// Both runs a test with the plugin's function, and then with the plugin of the tested
// package, which it builds as its author would, and loads.
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

// Load loads a module and waits until it is compiled. Compiled code is kept in the user's
// cache, because the compiler is slow under the race detector.
func Load(t testing.TB, path string) *wasmhost.Plugin {
	t.Helper()
	return LoadAs(t, wasmhost.Config{Path: path, CacheDir: cacheDir()})
}

// LoadAs loads a module with a configuration, which need not pin it, and waits until it is
// compiled.
func LoadAs(t testing.TB, c wasmhost.Config) *wasmhost.Plugin {
	t.Helper()
	c.AllowUnpinned = true
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

// cacheDir returns the directory of compiled code; "" disables the cache.
func cacheDir() string {
	cache, err := os.UserCacheDir()
	if err != nil {
		return ""
	}
	return filepath.Join(cache, "sonde-lab")
}

// With makes probes by a loaded plugin.
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

// valuesOf decodes settings as package config does.
func valuesOf(schema []abi.Setting, text string) (map[string]any, error) {
	values := make(map[string]any)
	d := json.NewDecoder(strings.NewReader(text))
	d.UseNumber()
	if err := d.Decode(&values); err != nil {
		return nil, fmt.Errorf("settings: %w", err)
	}
	return values, convert(schema, values)
}

// convert converts values to the types of their settings.
func convert(schema []abi.Setting, values map[string]any) (err error) {
	for _, s := range schema {
		v, ok := values[s.Name]
		if !ok {
			continue
		}
		if block, ok := v.(map[string]any); ok && s.Type == abi.TypeBlock {
			if err := convert(s.Block, block); err != nil {
				return err
			}
			continue
		}
		if values[s.Name], err = converted(s.Type, v); err != nil {
			return err
		}
	}
	return nil
}

func converted(kind abi.Type, v any) (any, error) {
	switch v := v.(type) {
	case json.Number:
		if kind == abi.TypeInt {
			return v.Int64()
		}
		return v.Float64()
	case string:
		if kind == abi.TypeDuration {
			return time.ParseDuration(v)
		}
	case []any:
		var list []string
		for _, element := range v {
			list = append(list, fmt.Sprint(element))
		}
		return list, nil
	case map[string]any:
		m := make(map[string]string)
		for key, element := range v {
			m[key] = fmt.Sprint(element)
		}
		return m, nil
	}
	return v, nil
}
