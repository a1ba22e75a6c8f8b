package module_test

import (
	"fmt"
	"strings"
	"testing"

	"github.com/sonde-probe/sonde/tests/tier"
	"github.com/sonde-probe/sonde/tests/wattest"
	"github.com/sonde-probe/sonde/wasmhost/internal/module"
)

// TestModulesThatTakeTooMuchToLoadAreRejected has modules for each of which wazero allocates gigabytes,
// whether it compiles their code or loads it.
func TestModulesThatTakeTooMuchToLoadAreRejected(t *testing.T) {
	tier.Slow(t)
	zeros, drops := strings.Repeat("i32.const 0 ", 100), strings.Repeat("drop ", 100)
	wide := `(func $wide (param ` + strings.Repeat("i32 ", 100) + `) ` + strings.Repeat("(result i32) ", 100) + zeros + `) `
	for name, test := range map[string]struct{ wat, want string }{
		"values":             {wide + `(func $run ` + zeros + strings.Repeat("call $wide ", 2_000) + drops + `)`, "calls and branches pass more than 262144 values"},
		"a branch table":     {`(func $run i32.const 0 br_table ` + strings.Repeat("0 ", 70_000) + `)`, "69999 entries, at most 65536"},
		"a function":         {`(func $run ` + strings.Repeat("i64.const 0x7fffffffffffffff drop ", 45_000) + `)`, "540002 bytes"},
		"locals":             {`(func $run ` + strings.Repeat("(local $x i32) ", 50_001) + `)`, "50001 entries, at most 50000"},
		"functions":          {`(func $run) ` + strings.Repeat("(func) ", 300_000), "300001 entries, at most 262144"},
		"growth by metering": {`(func $run) ` + strings.Repeat("(func) ", 150_000), "too large after metering"},
		"a table":            {`(table 70000) (func $run)`, "table of 70000 elements"},
		"globals":            {strings.Repeat(`(global $g i32 0) `, 5000) + `(func $run)`, "5000 entries, at most 4096"},
		"exports":            {`(func $run) ` + strings.Repeat("(func) ", 70_000) + strings.Repeat(`(export "f" (func $run)) `, 1000), "1000 exports and globals with 70001 functions"},
		"elements":           {`(table 1) (func $run) (elem 0 ` + strings.Repeat("$run ", 70_000) + `)`, "70000 entries, at most 65536"},
	} {
		t.Run(name, func(t *testing.T) {
			_, _, err := module.Meter(wattest.Assemble(test.wat))
			if err == nil || !strings.Contains(err.Error(), test.want) {
				t.Errorf("got %v, want %q", err, test.want)
			}
		})
	}
}

func TestTheLocalsOfAllFunctionsAreBounded(t *testing.T) {
	const n = 25 // functions with 50,000 locals each, in 6 bytes
	body := sized("\x01\xd0\x86\x03\x7f\x0b")
	_, _, err := module.Meter(handmade(section(3, entries(strings.Split(strings.Repeat("\x00", n), "")...)), section(10, string([]byte{n})+strings.Repeat(body, n))))
	if err == nil || !strings.Contains(err.Error(), "all functions together have more than 1048576 locals") {
		t.Errorf("got %v", err)
	}
}

// TestATableIsGivenAMaximum checks the maximum of tables, because wazero does not limit them.
func TestATableIsGivenAMaximum(t *testing.T) {
	for _, limits := range []string{"1", "1 10000000"} {
		wat := `(table ` + limits + `) (func $run (result i32) ref.null func i32.const 65536 table.grow 0) (export "run" (func $run))`
		if got := call(t, wat); got != 1<<32-1 {
			t.Errorf("a table of %s grew by 65536 elements", limits)
		}
	}
}

// TestWhatTakesLongIsPaidFor counts the units that a function uses. Each unit must pay for at most
// SlowUnit of running time, regardless of the code.
func TestWhatTakesLongIsPaidFor(t *testing.T) {
	tier.Slow(t)
	const n = 300
	many := func(code string) string { return strings.Repeat(code, n) }
	for name, test := range map[string]struct {
		wat   string
		least int32
	}{
		"growth of memory":       {`(memory 1) (func $run ` + many("i32.const 0 memory.grow drop ") + `)`, n * 32},
		"growth of a table":      {`(table 1) (func $run ` + many("ref.null func i32.const 0 table.grow 0 drop ") + `)`, n * 32},
		"references":             {`(table 1) (func $run ` + many("ref.func $run drop ") + `) (elem 0 $run)`, n * 32},
		"short copies":           {`(memory 1) (func $run ` + many("i32.const 0 i32.const 1 i32.const 63 memory.copy ") + `)`, n * 8},
		"long copies":            {`(memory 1) (func $run ` + many("i32.const 0 i32.const 1 i32.const 6400 memory.copy ") + `)`, n * 108},
		"loads":                  {`(memory 1) (func $run i32.const 0 ` + many("i32.load ") + ` drop)`, 2 * n},
		"stores":                 {`(memory 1) (func $run ` + many("i32.const 0 i32.const 0 i32.store ") + `)`, n},
		"divisions":              {`(func $run i32.const 1 ` + many("i32.const 7 i32.div_s ") + ` drop)`, n},
		"calls of little":        {`(func $f i32.const 0 drop) (func $run ` + many("call $f ") + `)`, 2 * n},
		"calls of loads":         {`(memory 1) (func $f i32.const 0 ` + strings.Repeat("i32.load ", 30) + ` drop) (func $run ` + many("call $f ") + `)`, 61 * n},
		"calls that return":      {`(memory 1) (func $f i32.const 0 ` + strings.Repeat("i32.load ", 30) + ` drop return) (func $run ` + many("call $f ") + `)`, 61 * n},
		"a branch to the end":    {`(memory 1) (func $f i32.const 0 ` + strings.Repeat("i32.load ", 30) + ` br_if 0) (func $run ` + many("call $f ") + `)`, 61 * n},
		"indirect calls":         {`(table 1) (func $f) (func $run ` + many("i32.const 0 call_indirect ") + `) (elem 0 $f)`, 2 * n},
		"a loop":                 {`(func $run (local $i i32) loop local.get $i i32.const 1 i32.add local.tee $i i32.const 300 i32.lt_s br_if 0 end)`, n},
		"a loop of loads":        {`(memory 1) (func $run (local $i i32) loop i32.const 0 ` + strings.Repeat("i32.load ", 30) + ` drop local.get $i i32.const 1 i32.add local.tee $i i32.const 300 i32.lt_s br_if 0 end)`, 30 * n},
		"calls with many values": {`(func $f (param ` + strings.Repeat("i64 ", 160) + `)) (func $run ` + strings.Repeat(strings.Repeat("i64.const 0 ", 160)+"call $f ", 30) + `)`, 30 * 20},
		"calls with many locals": {`(func $f ` + strings.Repeat("(local $x i64) ", 1600) + `) (func $run ` + many("call $f ") + `)`, n * 100},
		"a loop before a loop":   {`(memory 1) (func $run (local $i i32) loop loop i32.const 0 ` + strings.Repeat("i32.load ", 30) + ` drop end local.get $i i32.const 1 i32.add local.tee $i i32.const 300 i32.lt_s br_if 0 end)`, 30 * n},
		"a table of branches":    {`(func $run (local $i i32) loop block block ` + strings.Repeat("i32.const 7 i32.const 3 i32.div_s drop ", 30) + ` local.get $i i32.const 1 i32.add local.tee $i i32.const 300 i32.lt_s br_table 1 2 0 end end end)`, 30 * n},
		"straight code":          {`(func $run ` + strings.Repeat("i32.const 0 drop ", 8*n) + `)`, n},
		"copies of a large one":  {`(memory 512) (func $run i32.const 0 i32.const 1 i32.const 33554431 memory.copy)`, 1 << 19},
	} {
		t.Run(name, func(t *testing.T) {
			if got := units(t, test.wat+` (export "run" (func $run))`); got < test.least {
				t.Errorf("it used %d units, want at least %d", got, test.least)
			}
		})
	}
}

func TestAssembledInstructions(t *testing.T) {
	wat := `(table 2) (func $one (result i32) i32.const 1) (func $two (result i32) i32.const 2) (elem 0 $one $two)
		(func $pick (param $i i32) (result i32) block block local.get $i br_table 0 1 end i32.const 0 call_indirect (result i32) return end i32.const 1 call_indirect (result i32))
		(func $run (result i32) i32.const 0 call $pick i32.const 10 i32.mul i32.const 5 call $pick i32.add) (export "run" (func $run))`
	if got := fmt.Sprint(call(t, wat)); got != "12" {
		t.Errorf("got %s", got)
	}
}
