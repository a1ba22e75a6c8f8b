package handlers

import (
	"slices"
	"testing"

	"github.com/sonde-probe/sonde/cmd/engine/internal/embedded"
	"github.com/sonde-probe/sonde/wasmhost/abi"
)

func TestTheInterpreterHasTheSettingsOfAScript(t *testing.T) {
	module, err := embedded.Starlark()
	if err != nil {
		t.Skip("the interpreter has not been built: make build")
	}
	m, err := abi.ReadManifest(module)
	if err != nil {
		t.Fatal(err)
	}
	var names []string
	for _, s := range m.Settings {
		if s.Name == ScriptBlock {
			for _, inner := range s.Block {
				names = append(names, inner.Name)
			}
		}
	}
	if want := []string{scriptSource, scriptFile, scriptLine, scriptColumn, scriptMaxSteps}; !slices.Equal(names, want) {
		t.Errorf("the settings are %q, want %q", names, want)
	}
}
