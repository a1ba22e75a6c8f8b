// Package plugintest finds the example plugins that tests of commands use.
package plugintest

import (
	"os"
	"path/filepath"
	"testing"
)

// GRPC returns the file of the plugin grpc, for the test of a package beside this one. It
// skips the test if the plugin has not been built.
func GRPC(t testing.TB) string {
	t.Helper()
	file := filepath.Join("..", "..", "..", "..", "examples", "wasm-probes", "grpc", "grpc.wasm")
	if _, err := os.Stat(file); err != nil {
		t.Skip("the grpc plugin has not been built: ", err)
	}
	return file
}
