package wasmprobes

import (
	"os"
	"os/exec"
	"path/filepath"
	"regexp"
	"strings"
	"testing"

	"github.com/sonde-probe/sonde/tests/program"
	"github.com/sonde-probe/sonde/tests/tier"
)

func TestThePluginOfEachREADMEBuilds(t *testing.T) {
	tier.CI(t) // requires compilers
	sonde := program.Build(t, program.Sonde)
	setCompilerOfAssemblyScript(t)
	for lang, source := range map[string]string{"c": "c", "rust": "rs", "as": "ts"} {
		t.Run(lang, func(t *testing.T) {
			dir := filepath.Join(t.TempDir(), "listens")
			run(t, exec.Command(sonde, "plugin", "new", "--lang", lang, "--dir", dir, "listens"))
			readme := filepath.Join("..", "..", "guest", lang, "README.md")
			write(t, filepath.Join(dir, "listens."+source), block(t, readme, 0))
			write(t, filepath.Join(dir, "manifest.json"), block(t, readme, 1))
			text, err := exec.Command(sonde, "plugin", "build", dir).CombinedOutput()
			if strings.Contains(string(text), "a tool is missing") {
				tier.Lacks(t, string(text))
			}
			if err != nil {
				t.Fatalf("%v\n%s", err, text)
			}
		})
	}
}

// setCompilerOfAssemblyScript makes sonde plugin build use the compiler in line-as, if that is
// installed.
func setCompilerOfAssemblyScript(t *testing.T) {
	asc, err := filepath.Abs("line-as/node_modules/.bin/asc")
	if err != nil {
		t.Fatal(err)
	}
	if _, err := os.Stat(asc); err == nil && os.Getenv("ASC") == "" {
		t.Setenv("ASC", asc)
	}
}

// fenced matches a fenced code block in a README.md.
var fenced = regexp.MustCompile("(?ms)^```[a-z]+\n(.*?)^```$")

// block returns the nth code block of a README.md.
func block(t *testing.T, readme string, nth int) string {
	t.Helper()
	text, err := os.ReadFile(readme)
	if err != nil {
		t.Fatal(err)
	}
	all := fenced.FindAllStringSubmatch(string(text), -1)
	if nth >= len(all) {
		t.Fatalf("%s has %d blocks of code", readme, len(all))
	}
	return all[nth][1]
}

func write(t *testing.T, file, text string) {
	t.Helper()
	if err := os.WriteFile(file, []byte(text), 0o600); err != nil {
		t.Fatal(err)
	}
}
