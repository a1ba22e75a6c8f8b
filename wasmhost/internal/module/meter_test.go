package module_test

import (
	"context"
	"errors"
	"fmt"
	"strings"
	"testing"
	"time"

	"github.com/tetratelabs/wazero"
	"github.com/tetratelabs/wazero/api"

	"github.com/sonde-probe/sonde/tests/tier"
	"github.com/sonde-probe/sonde/tests/wattest"
	"github.com/sonde-probe/sonde/wasmhost/internal/module"
)

var errEnough = errors.New("enough")

// start instantiates a metered module, whose tick calls f.
func start(tb testing.TB, wat string, f func(fuel *uint32)) api.Module {
	tb.Helper()
	wasm, _, err := module.Meter(wattest.Assemble(wat))
	if err != nil {
		tb.Fatal(err)
	}
	ctx := context.Background()
	r := wazero.NewRuntime(ctx)
	tb.Cleanup(func() { r.Close(ctx) })
	if _, err = host(r, f); err != nil {
		tb.Fatal(err)
	}
	m, err := r.InstantiateWithConfig(ctx, wasm, wazero.NewModuleConfig())
	if err != nil {
		tb.Fatal(err)
	}
	return m
}

// run calls function run of a metered module, with a tick that sets fuel until it has been called
// most times. It returns the number of ticks, and the longest time between two ticks.
func run(tb testing.TB, wat string, fuel uint32, most int, args ...uint64) (ticks int, longest time.Duration, err error) {
	tb.Helper()
	var last time.Time
	m := start(tb, wat, func(f *uint32) {
		if !last.IsZero() {
			longest = max(longest, time.Since(last))
		}
		if ticks++; ticks > most {
			panic(errEnough)
		}
		*f, last = fuel, time.Now()
	})
	m.ExportedGlobal(module.FuelExport).(api.MutableGlobal).Set(uint64(fuel))
	_, err = m.ExportedFunction("run").Call(context.Background(), args...)
	return ticks, longest, err
}

// call calls function run of a metered module, and returns its result.
func call(tb testing.TB, wat string) uint64 {
	tb.Helper()
	results, err := start(tb, wat, func(*uint32) {}).ExportedFunction("run").Call(context.Background())
	if err != nil || len(results) != 1 {
		tb.Fatalf("got %v, %v", results, err)
	}
	return results[0]
}

// units returns the number of units that function run of a metered module uses.
func units(tb testing.TB, wat string) int32 {
	tb.Helper()
	const plenty = 1 << 30
	m := start(tb, wat, func(*uint32) { tb.Error("tick was called") })
	fuel := m.ExportedGlobal(module.FuelExport).(api.MutableGlobal)
	fuel.Set(plenty)
	if _, err := m.ExportedFunction("run").Call(context.Background()); err != nil {
		tb.Fatal(err)
	}
	return plenty - api.DecodeI32(fuel.Get())
}

func TestCodeThatGoesOnAsksTheHost(t *testing.T) {
	sqrt := strings.Repeat("i32.const 7 i32.div_s ", 2_000)
	for name, wat := range map[string]string{
		"a loop":                   `(func $run loop br 0 end)`,
		"a loop with a condition":  `(func $run (local $i i32) loop local.get $i i32.const 1 i32.add local.tee $i br_if 0 end)`,
		"nested loops":             `(func $run loop block loop br 1 end end br 0 end)`,
		"recursion":                `(func $run (local $i i32) call $run call $run)`,
		"recursion of two":         `(func $a call $run) (func $run loop call $a br 0 end)`,
		"recursion by halves":      `(func $fib (param $n i32) (result i32) local.get $n i32.const 2 i32.lt_s if local.get $n return end local.get $n i32.const 1 i32.sub call $fib local.get $n i32.const 2 i32.sub call $fib i32.add) (func $run i32.const 60 call $fib drop)`,
		"fills of all memory":      `(memory 512) (func $run loop i32.const 0 i32.const 1 i32.const 33554432 memory.fill br 0 end)`,
		"copies of all memory":     `(memory 512) (func $run loop i32.const 0 i32.const 16777216 i32.const 16777216 memory.copy br 0 end)`,
		"growth of nothing":        `(memory 1) (func $run loop i32.const 0 memory.grow drop br 0 end)`,
		"growth of a table":        `(table 0 65536) (func $run loop ref.null func i32.const 0 table.grow 0 drop br 0 end)`,
		"straight code, and calls": `(func $slow i32.const 1 ` + sqrt + ` drop) (func $run loop call $slow br 0 end)`,
	} {
		t.Run(name, func(t *testing.T) {
			ticks, longest, err := run(t, wat+` (export "run" (func $run))`, 1000, 50)
			if ticks > 50 && err != nil && strings.Contains(err.Error(), errEnough.Error()) {
				t.Logf("longest time between two ticks: %v", longest)
				return
			}
			t.Errorf("ended after %d ticks: %v", ticks, err)
		})
	}
}

// TestStraightCodeIsPaidFor calls a long function without loops, once for each branch. The function
// must pay for the executed code on every path.
func TestStraightCodeIsPaidFor(t *testing.T) {
	tier.Slow(t)
	const part = 400 // of i32.const 1 and drop: below a stretch
	few := strings.Repeat("i32.const 1 drop ", part/2)
	branches := map[string]string{
		"one block":                strings.Repeat(few, 40),
		"branches taken":           strings.Repeat(`local.get 0 if `+few+` else `+few+` end `, 40),
		"blocks left early":        strings.Repeat(few+` block local.get 0 br_if 0 `+few+few+few+few+` end `, 40),
		"ifs that are not entered": strings.Repeat(few+` local.get 0 i32.eqz if `+few+few+few+` end `, 40),
	}
	for name, body := range branches {
		for _, arg := range []uint64{0, 1} {
			t.Run(fmt.Sprint(name, " ", arg), func(t *testing.T) {
				wat := `(func $run (param i32) ` + body + `) (export "run" (func $run))`
				ticks, _, err := run(t, wat, 1, 1<<30, arg)
				if err != nil {
					t.Fatal(err)
				}
				least := 40 * strings.Count(few, "drop") * 2 / 512 / 2 // two units are enough for each tick
				if ticks < least {
					t.Errorf("%d ticks, want at least %d", ticks, least)
				}
			})
		}
	}
}

// TestTheModuleCannotReachTheMeter has modules that use the indices of Rewrite's additions. They
// are invalid, and must not become valid.
func TestTheModuleCannotReachTheMeter(t *testing.T) {
	for name, wat := range map[string]string{
		"the count is set":          `(func $run i32.const 0 global.set 0)`,
		"the count is read":         `(func $run global.get 0 drop)`,
		"tick is called":            `(func $run call 1)`,
		"the count is exported":     `(func $run nop) (export "x" (global 0))`,
		"tick is exported":          `(func $run nop) (export "x" (func 1))`,
		"tick is the start":         `(func $run nop) (start 1)`,
		"the spare local is set":    `(func $run i32.const 1 local.set 0)`,
		"its export has a name":     `(func $run nop) (export "sonde_meter_fuel" (func $run))`,
		"tick is imported":          `(import "sonde_meter" "tick" (func $t)) (func $run call $t)`,
		"a label that is too far":   `(func $run br 1)`,
		"else without if":           `(func $run block else end)`,
		"a block that does not end": `(func $run block)`,
		"an end too many":           `(func $run end end)`,
	} {
		t.Run(name, func(t *testing.T) {
			if out, _, err := module.Meter(wattest.Assemble(wat + ` (export "run" (func $run))`)); err == nil {
				t.Errorf("accepted: %q", out)
			}
		})
	}
}

func TestWhatAnImageCannotHaveIsReported(t *testing.T) {
	const table, element = "\x04\x04\x01\x70\x00\x01", "\x09\x07\x01\x05\x70\x01\xd0\x70\x0b" // both with one element
	for name, test := range map[string]struct {
		code string
		want string
	}{
		"nothing":    {"", ""},
		"table.get":  {"\x41\x00\x25\x00\x1a", ""},
		"table.size": {"\xfc\x10\x00\x1a", ""},
		"elem.drop":  {"\xfc\x0d\x00", ""},
		"table.set":  {"\x41\x00\xd0\x70\x26\x00", "function 0 changes a table"},
		"table.init": {"\x41\x00\x41\x00\x41\x00\xfc\x0c\x00\x00", "function 0 changes a table"},
		"table.copy": {"\x41\x00\x41\x00\x41\x00\xfc\x0e\x00\x00", "function 0 changes a table"},
		"table.grow": {"\xd0\x70\x41\x00\xfc\x0f\x00\x1a", "function 0 changes a table"},
		"table.fill": {"\x41\x00\xd0\x70\x41\x00\xfc\x11\x00", "function 0 changes a table"},
		"ref.func":   {"\xd2\x00\x1a", "function 0 makes a reference to a function"},
	} {
		wasm := []byte("\x00asm\x01\x00\x00\x00\x01\x04\x01\x60\x00\x00\x03\x02\x01\x00" + table + element)
		body := "\x00" + test.code + "\x0b"
		wasm = append(wasm, "\x0a"+string([]byte{byte(len(body) + 2), 1, byte(len(body))})+body...)
		if _, info, err := module.Meter(wasm); err != nil || info.NoImage != test.want {
			t.Errorf("%s: got %+v, %v", name, info, err)
		}
	}
	for name, test := range map[string]struct {
		wasm []byte
		want string
	}{
		"numbers":                {handmade(section(6, "\x04\x7f\x01\x41\x00\x0b\x7e\x01\x42\x00\x0b\x7d\x01\x43\x00\x00\x00\x00\x0b\x7c\x01\x44\x00\x00\x00\x00\x00\x00\x00\x00\x0b")), ""},
		"a constant reference":   {handmade(section(6, "\x01\x70\x00\xd0\x70\x0b")), ""},
		"a reference":            {handmade(section(6, "\x01\x70\x01\xd0\x70\x0b")), "global 0 is a mutable reference or vector"},
		"a vector":               {handmade(section(6, "\x01\x7b\x01\xfd\x0c"+strings.Repeat("\x00", 16)+"\x0b")), "global 0 is a mutable reference or vector"},
		"a passive data segment": {handmade(section(5, "\x01\x00\x01"), section(12, "\x01"), section(11, "\x01\x01\x01x")), "data segment 0 is passive"},
	} {
		if _, info, err := module.Meter(test.wasm); err != nil || info.NoImage != test.want {
			t.Errorf("%s: got %+v, %v", name, info, err)
		}
	}
}

func TestWhatTheRuntimeTakesForAModuleIsKnown(t *testing.T) {
	const run = `(func $run) (export "run" (func $run))`
	info := func(wat string) module.Info {
		_, info, err := module.Meter(wattest.Assemble(run + wat))
		if err != nil {
			t.Fatal(err)
		}
		return info
	}
	if got := info(""); got != (module.Info{}) {
		t.Errorf("of a module without tables and globals: got %+v", got)
	}
	for wat, least := range map[string]int64{
		`(table 1000)`: 8 * 1000,
		`(table 100) (elem 0 $run $run $run $run)`:                           8*100 + 4*32,
		strings.Repeat(`(global $g i32 0)`, 100):                             100 * 100,
		`(import "sonde_v1" "clock" (func $clock (param i32) (result i64)))`: 32,
	} {
		if got := info(wat).Overhead; got < least || got > 4*least {
			t.Errorf("%.60s: %d bytes, want at least %d", wat, got, least)
		}
	}
	_, passive, err := module.Meter(handmade(section(3, "\x01\x00"), section(9, "\x01\x01\x00\x03\x00\x00\x00"), section(10, "\x01\x02\x00\x0b"))) // three references
	if err != nil || passive.Overhead < 3*(8+32)+24 {
		t.Errorf("a passive segment: got %+v, %v", passive, err)
	}
}
