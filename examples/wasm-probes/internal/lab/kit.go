package lab

import (
	"strconv"
	"testing"
	"time"

	"github.com/sonde-probe/sonde/wasmhost"
	"github.com/sonde-probe/sonde/wasmhost/abi"
	"github.com/sonde-probe/sonde/wasmhost/tck"
)

// Conforms runs the conformance kit for a module. A healthy server must listen on the port of
// 127.0.0.1.
func Conforms(t *testing.T, module, port, settings string) {
	t.Helper()
	code := []byte(read(t, module))
	m, err := abi.ReadManifest(code)
	if err != nil {
		t.Fatal(err)
	}
	values, err := valuesOf(m.Settings, settings)
	if err != nil {
		t.Fatal(err)
	}
	number, err := strconv.ParseUint(port, 10, 16)
	if err != nil {
		t.Fatal(err)
	}
	checks, err := tck.Run(t.Context(), tck.Config{
		Plugin:   wasmhost.Config{Module: code, CacheDir: cacheDir()},
		Settings: values, Address: "127.0.0.1", Port: uint16(number),
		Timeout: Timeout, Silence: time.Second,
	})
	if err != nil {
		t.Fatal(err)
	}
	for _, c := range checks {
		if c.Err != nil {
			t.Errorf("%s: %v", c.Name, c.Err)
		}
		if c.Skipped != "" {
			t.Errorf("%s was skipped: %s", c.Name, c.Skipped)
		}
	}
}
