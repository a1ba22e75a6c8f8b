package module_test

import (
	"strings"
	"testing"

	"github.com/sonde-probe/sonde/tests/wattest"
	"github.com/sonde-probe/sonde/wasmhost/internal/module"
)

// raw returns a module of sections, each given as an id and a body.
func raw(sections ...string) []byte {
	out := "\x00asm\x01\x00\x00\x00"
	for _, s := range sections {
		out += section(s[0], s[1:])
	}
	return []byte(out)
}

func TestModulesThatCannotBePreparedAreRejected(t *testing.T) {
	const memory = "\x05\x01\x00\x01"
	for name, test := range map[string]struct {
		wasm []byte
		want string
	}{
		"an export of the host's own":  {wattest.Assemble(`(func $f) (export "sonde_image_start" (func $f))`), "is reserved for the host: rename it"},
		"an offset of type i64":        {raw(memory, "\x0b\x01\x00\x42\x00\x0b\x00"), "offset is not a constant of type i32"},
		"an offset of two numbers":     {raw(memory, "\x0b\x01\x00\x41\x00\x41\x00\x0b\x00"), "offset is not a constant of type i32"},
		"an offset that is not there":  {raw(memory, "\x0b\x01\x00\x0b\x00"), "offset is not a constant of type i32"},
		"an offset that is not const":  {raw(memory, "\x0b\x01\x00\x01\x0b\x00"), "not allowed in a constant expression"},
		"data that ends early":         {raw(memory, "\x0b\x01\x00\x41\x00\x0b\x05abc"), "ends too early"},
		"more after the data segments": {raw(memory, "\x0b\x01\x00\x41\x00\x0b\x01a!"), "left over"},
	} {
		t.Run(name, func(t *testing.T) {
			if _, err := module.Rewrite(test.wasm); err == nil || !strings.Contains(err.Error(), test.want) {
				t.Errorf("got %v, want %q", err, test.want)
			}
		})
	}
}
