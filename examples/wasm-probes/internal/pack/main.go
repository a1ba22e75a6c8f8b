// Pack adds a plugin's manifest to its module: the last step of building a plugin in a
// language whose tools cannot do that. `sonde plugin build` does the same.
//
//	go run ./internal/pack manifest.json module.wasm plugin.wasm
package main

import (
	"fmt"
	"os"

	"github.com/sonde-probe/sonde/wasmhost/abi"
)

func main() {
	if len(os.Args) != 4 {
		fmt.Fprintln(os.Stderr, "usage: pack MANIFEST MODULE PLUGIN")
		os.Exit(2)
	}
	if err := pack(os.Args[1], os.Args[2], os.Args[3]); err != nil {
		fmt.Fprintln(os.Stderr, "pack:", err)
		os.Exit(1)
	}
}

// pack writes the module with its manifest to a file.
func pack(manifest, module, plugin string) error {
	text, err := os.ReadFile(manifest)
	if err != nil {
		return err
	}
	m, err := abi.ParseManifest(text)
	if err != nil {
		return fmt.Errorf("%s: %w", manifest, err)
	}
	code, err := os.ReadFile(module)
	if err != nil {
		return err
	}
	code, err = abi.WriteManifest(code, m)
	if err != nil {
		return fmt.Errorf("%s: %w", module, err)
	}
	return os.WriteFile(plugin, code, 0o644)
}
