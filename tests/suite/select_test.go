package main

import "testing"

func TestAFileIsTestedByThePackageThatReadsIt(t *testing.T) {
	all := []pkg{{Dir: "/root/engine"}, {Dir: "/root/config"}}
	for file, want := range map[string]string{
		"engine/engine.go":               "/root/engine",
		"config/testdata/deep/golden":    "/root/config",
		"tests/scripts/run.txtar":        "/root/cmd/engine",
		"docs/states.md":                 "/root/engine/verdict",
		"docs/configuration/resource.md": "/root/cmd/engine/internal/reference",
		"docs/operations.md":             "/root/tests",
		"Makefile":                       "/root/tests",
	} {
		if got := packageDir(all, "/root", file); got != want {
			t.Errorf("%s is tested by %s, want %s", file, got, want)
		}
	}
}
