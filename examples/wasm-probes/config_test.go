// Package wasmprobes tests each plugin's directory in the way that a newcomer uses it: it builds
// the plugin, and checks its README.md and its config.hcl.
package wasmprobes

import (
	"bytes"
	"encoding/json"
	"errors"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"regexp"
	"strings"
	"testing"

	"github.com/sonde-probe/sonde/tests/program"
	"github.com/sonde-probe/sonde/tests/tier"
	"github.com/sonde-probe/sonde/wasmhost/abi"
)

func TestREADMEsMatchTheirPlugins(t *testing.T) {
	sonde := program.Build(t, program.Sonde)
	index, err := os.ReadFile("README.md")
	if err != nil {
		t.Fatal(err)
	}
	for _, folder := range folders(t) {
		t.Run(folder, func(t *testing.T) {
			if !strings.Contains(string(index), "| ["+folder+"]("+folder+") |") {
				t.Errorf("README.md does not name %s", folder)
			}
			dir := t.TempDir()
			switch folder {
			case "heartbeat":
			case "grpc", "line-c":
				tier.CI(t)
			default: // they take a minute
				tier.Long(t)
			}
			manifest := build(t, folder, dir)
			accepted(t, sonde, folder, dir)
			shown(t, sonde, folder, dir)
			documented(t, filepath.Join(folder, "README.md"), manifest.Settings)
		})
	}
}

func TestAnotherBuildGivesTheSameBytes(t *testing.T) {
	tier.CI(t)
	module := filepath.Join(t.TempDir(), "thrift.wasm")
	var before []byte
	for range 2 {
		run(t, exec.Command("go", "run", "./thrift", "-o", module))
		after, err := os.ReadFile(module)
		if err != nil {
			t.Fatal(err)
		}
		if before != nil && !bytes.Equal(before, after) {
			t.Errorf("%d bytes, and then %d", len(before), len(after))
		}
		before = after
	}
}

// folders returns the directories of plugins with a configuration.
func folders(t *testing.T) []string {
	t.Helper()
	found, err := filepath.Glob("*/config.hcl")
	if err != nil || len(found) == 0 {
		t.Fatalf("there are no configurations: %v", err)
	}
	for i, file := range found {
		found[i] = filepath.Dir(file)
	}
	return found
}

// run runs a command that must succeed. An exit code of 77 means that a tool is missing; .ci/run
// installs the tools.
func run(t *testing.T, c *exec.Cmd) {
	t.Helper()
	text, err := c.CombinedOutput()
	var exit *exec.ExitError
	if errors.As(err, &exit) && exit.ExitCode() == 77 {
		tier.Lacks(t, string(text))
	}
	if err != nil {
		t.Fatalf("%s: %v\n%s", strings.Join(c.Args, " "), err, text)
	}
}

// build builds a folder's plugin into dir, and returns its manifest.
func build(t *testing.T, folder, dir string) abi.Manifest {
	t.Helper()
	name, _, other := strings.Cut(folder, "-") // line-c is the plugin line, in C
	module := filepath.Join(dir, name+".wasm")
	if other {
		run(t, exec.Command(filepath.Join(folder, "build.sh"), dir))
	} else {
		run(t, exec.Command("go", "run", "./"+folder, "-o", module))
	}
	code, err := os.ReadFile(module)
	if err != nil {
		t.Fatal(err)
	}
	m, err := abi.ReadManifest(code)
	if err != nil {
		t.Fatal(err)
	}
	if m.Name != name {
		t.Errorf("the plugin is called %s, and its folder %s", m.Name, folder)
	}
	return m
}

// accepted checks that a directory's configuration is valid and formatted.
func accepted(t *testing.T, sonde, folder, dir string) {
	t.Helper()
	text, err := os.ReadFile(filepath.Join(folder, "config.hcl"))
	if err != nil {
		t.Fatal(err)
	}
	file := filepath.Join(dir, "config.hcl")
	write(t, file, string(text))
	run(t, exec.Command(sonde, "fmt", "--check", file))
	run(t, exec.Command(sonde, "validate", file))
}

// Patterns of the declarations that the probe in a README.md needs.
var (
	namedPort = regexp.MustCompile(`\bport\s*=\s*"([a-z]+)"`)
	variable  = regexp.MustCompile(`\bvar\.([a-z_]+)`)
)

// shown checks that the probe in a README.md is valid for a target with the ports that it
// names.
func shown(t *testing.T, sonde, folder, dir string) {
	t.Helper()
	probe := block(t, filepath.Join(folder, "README.md"), 0)
	name, _, _ := strings.Cut(folder, "-")
	var b strings.Builder
	fmt.Fprintf(&b, "plugin %q {\n  source = \"%s.wasm\"\n  allow_unpinned = true\n}\n", name, name)
	for _, v := range variable.FindAllStringSubmatch(probe, -1) {
		fmt.Fprintf(&b, "variable %q { default = \"x\" }\n", v[1])
	}
	b.WriteString("target \"shown\" {\n  address = \"127.0.0.1\"\n")
	for i, p := range namedPort.FindAllStringSubmatch(probe, -1) {
		fmt.Fprintf(&b, "  ports = { %s = %d }\n", p[1], i+1)
	}
	b.WriteString(probe + "}\n")
	write(t, filepath.Join(dir, "shown.hcl"), b.String())
	run(t, exec.Command(sonde, "validate", filepath.Join(dir, "shown.hcl")))
}

// row matches a row in a README.md's table of settings: | `name` | meaning |
var row = regexp.MustCompile("(?m)^\\| (`[a-z_`, ]+`) \\| (.+) \\|$")

// documented checks a README.md's table against the settings of the manifest.
func documented(t *testing.T, readme string, settings []abi.Setting) {
	t.Helper()
	text, err := os.ReadFile(readme)
	if err != nil {
		t.Fatal(err)
	}
	_, table, _ := strings.Cut(string(text), "\n| setting | meaning |\n")
	table, _, _ = strings.Cut(table, "\n\n")
	rows := make(map[string]string)
	for _, r := range row.FindAllStringSubmatch(table, -1) {
		for name := range strings.SplitSeq(r[1], ", ") {
			rows[strings.Trim(name, "`")] = r[2]
		}
	}
	for _, s := range settings {
		meaning, ok := rows[s.Name]
		if delete(rows, s.Name); !ok {
			t.Errorf("%s does not name the setting %s", readme, s.Name)
			continue
		}
		agrees(t, readme, s, meaning)
	}
	for name := range rows {
		t.Errorf("%s names the setting %s, which the plugin does not take", readme, name)
	}
}

// agrees checks that a setting's row states its default, or that it is required.
func agrees(t *testing.T, readme string, s abi.Setting, meaning string) {
	t.Helper()
	if s.Required != strings.HasSuffix(meaning, "required") {
		t.Errorf("%s, %s: the row ends with %q, required is %v", readme, s.Name, meaning, s.Required)
	}
	if s.Default == nil || string(s.Default) == `"0s"` {
		return
	}
	value := string(s.Default)
	if s.Type == abi.TypeString || s.Type == abi.TypeDuration {
		if err := json.Unmarshal(s.Default, &value); err != nil {
			t.Fatal(err)
		}
	}
	value = strings.NewReplacer("\r", `\r`, "\n", `\n`).Replace(value) // as in HCL
	_, documented, ok := strings.Cut(meaning, "default ")
	if !ok || strings.Trim(documented, "`") != value {
		t.Errorf("%s, %s: the row says the default %q, it is %s", readme, s.Name, documented, value)
	}
}
