package module

import (
	"bytes"
	"testing"

	"github.com/sonde-probe/sonde/wasmhost/abi"
)

// smallest is a module of one page whose sonde_run returns 1.
const smallest = "\x00asm\x01\x00\x00\x00" +
	"\x01\x05\x01\x60\x00\x01\x7f" + // type: () -> i32
	"\x03\x02\x01\x00" + // function: of that type
	"\x05\x03\x01\x00\x01" + // memory: 1 page
	"\x07\x25\x03\x06memory\x02\x00\x0csonde_abi_v1\x00\x00\x09sonde_run\x00\x00" + // exports
	"\x0a\x06\x01\x04\x00\x41\x01\x0b" // code: i32.const 1

// FuzzCheck verifies that an accepted module has the exports that a host calls, and that parsing
// does not read out of bounds.
func FuzzCheck(f *testing.F) {
	f.Add([]byte(smallest))
	f.Add(bytes.Replace([]byte(smallest), []byte("\x05\x03\x01"), []byte("\x04\x04\x01\x70\x00\x01\x05\x03\x01"), 1))
	const maxMemory = 32 << 20
	f.Fuzz(func(t *testing.T, wasm []byte) {
		m, err := Parse(wasm)
		if err != nil || m.Check(maxMemory) != nil {
			return
		}
		if initial, _ := m.Memory(); initial > maxMemory || !m.hasExport(abi.ExportRun) || !m.hasExport(abi.ExportMemory) {
			t.Errorf("accepted with %d bytes of memory, and the exports %q", initial, m.Exports())
		}
	})
}
