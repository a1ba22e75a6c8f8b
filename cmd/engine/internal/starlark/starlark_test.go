package starlark

import (
	"errors"
	"slices"
	"testing"
	"testing/fstest"

	"github.com/sonde-probe/sonde/wasmhost/abi"
)

func TestAProgramBuiltWithoutTheInterpreterSaysHowToGetIt(t *testing.T) {
	files := fstest.MapFS{"module/README.md": {}}
	if _, err := moduleIn(files); !errors.Is(err, ErrMissing) {
		t.Errorf("the error is %v", err)
	}
}

func TestTheInterpreterHasTheSettingsOfAScript(t *testing.T) {
	module, err := Module()
	if err != nil {
		t.Skip("the interpreter has not been built: make build")
	}
	m, err := abi.ReadManifest(module)
	if err != nil {
		t.Fatal(err)
	}
	var names []string
	for _, s := range m.Settings {
		if s.Name == Block {
			for _, inner := range s.Block {
				names = append(names, inner.Name)
			}
		}
	}
	if want := []string{Source, File, Line, Column, MaxSteps}; !slices.Equal(names, want) {
		t.Errorf("the settings are %q, want %q", names, want)
	}
}
