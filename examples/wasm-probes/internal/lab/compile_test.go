package lab

import (
	"path/filepath"
	"testing"

	"github.com/sonde-probe/sonde/tests/tier"
)

// TestModulesCompile leaves the code of all plugins in Go in the cache of Load.
func TestModulesCompile(t *testing.T) {
	tier.Long(t)
	mains, err := filepath.Glob(filepath.Join("..", "..", "*", "main.go"))
	if err != nil || len(mains) == 0 {
		t.Fatalf("there are no plugins: %v", err)
	}
	for _, main := range mains {
		dir := filepath.Dir(main)
		t.Run(filepath.Base(dir), func(t *testing.T) { Load(t, Build(t, dir)) })
	}
}
