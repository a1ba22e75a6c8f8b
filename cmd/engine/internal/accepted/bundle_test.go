package accepted

import (
	"errors"
	"io/fs"
	"os"
	"path/filepath"
	"reflect"
	"slices"
	"strings"
	"testing"

	"github.com/sonde-probe/sonde/config"
	"github.com/sonde-probe/sonde/fleet/revision"
)

// folder writes files to a temporary folder, and returns its path.
func folder(t *testing.T, texts map[string]string) string {
	t.Helper()
	dir := t.TempDir()
	for name, text := range texts {
		path := filepath.Join(dir, name)
		if err := os.MkdirAll(filepath.Dir(path), 0o700); err != nil {
			t.Fatal(err)
		}
		if err := os.WriteFile(path, []byte(text), 0o600); err != nil {
			t.Fatal(err)
		}
	}
	return dir
}

// parse parses Inputs like commands do.
func parse(t *testing.T, in *Inputs) *config.Config {
	t.Helper()
	c, diags := config.Parse(in.Sources, config.Options{
		Env: in.LookupEnv, ReadFile: in.ReadFile, IsFile: in.IsFile, MoreTargets: true, IsPushed: IsOfFleet,
	})
	if diags.HasErrors() {
		var text strings.Builder
		_ = diags.WriteText(&text, false)
		t.Fatal(text.String())
	}
	return c
}

const withFiles = `
locals {
  list   = file("lists/a.txt")
  absent = fileexists("lists/b.txt")
  token  = sensitive(env("BUNDLE_TOKEN"))
  local  = file("LOCAL")
}
`

func TestAPushedConfigurationIsReadAlikeOnEachEngine(t *testing.T) {
	t.Setenv("BUNDLE_TOKEN", "hunter22")
	local := filepath.Join(folder(t, map[string]string{"secret": "of this machine"}), "secret")
	dir := folder(t, map[string]string{
		"a.hcl": strings.Replace(withFiles, "LOCAL", local, 1), "b.hcl": `locals { b = file("./lists/a.txt") }`,
		"lists/a.txt": "one", "other.txt": "not named", "empty.txt": "",
	})
	pushed, diags := ReadFleet([]string{dir})
	if diags.HasErrors() {
		t.Fatal(diags)
	}
	c := parse(t, pushed)
	b, locals, err := pushed.Bundle(c.Secrets)
	if err != nil {
		t.Fatal(err)
	}
	if !slices.Equal(b.Sources, []string{"a.hcl", "b.hcl"}) || len(b.Files) != 3 || string(b.Files["lists/a.txt"]) != "one" || !slices.Equal(locals, []string{local}) {
		t.Errorf("it is pushed as %q with %q, without %q", b.Sources, b.Files, locals)
	}

	engine := OfRevision(revision.Ref{}, b)
	t.Setenv("BUNDLE_TOKEN", "another")
	parse(t, engine)
	if text, err := engine.ReadFile(fleetFolder+"/lists/a.txt", 100); err != nil || string(text) != "one" || !engine.IsFile(fleetFolder+"/lists/a.txt") {
		t.Errorf("read %q, %v", text, err)
	}
	if _, err := engine.ReadFile(fleetFolder+"/other.txt", 100); !errors.Is(err, fs.ErrNotExist) || engine.IsFile(fleetFolder+"/other.txt") {
		t.Errorf("a file that is not of the revision: %v", err)
	}
	if value, _ := engine.LookupEnv("BUNDLE_TOKEN"); value != "another" {
		t.Errorf("the token is %q", value)
	}
	again, _, err := engine.Bundle(nil)
	if err != nil || !reflect.DeepEqual(again, b) {
		t.Errorf("the engine has %q, %v", again, err)
	}
}

func TestWhatMustNotBePushedIsRefused(t *testing.T) {
	t.Setenv("BUNDLE_TOKEN", "hunter22")
	for want, texts := range map[string]map[string]string{
		"a.hcl:1: this line contains a sensitive value":     {"a.hcl": `locals { token = sensitive("hunter22") }`},
		"token.txt:2: this line contains":                   {"a.hcl": `locals { token = sensitive(file("token.txt")) }`, "token.txt": "\nhunter22\n"},
		"list.txt:3: this line contains":                    {"a.hcl": "locals {\n token = sensitive(env(\"BUNDLE_TOKEN\"))\n list = file(\"list.txt\")\n}", "list.txt": "a\n(sen\n(hunter22 b"},
		"outside.txt is outside the configuration's folder": {"a.hcl": `locals { there = try(file("../outside.txt"), "") }`},
		"other.txt is outside the configuration's fold":     {"a.hcl": `locals { there = fileexists("../other.txt") }`},
	} {
		in, diags := ReadFleet([]string{filepath.Join(folder(t, texts), "a.hcl")})
		if diags.HasErrors() {
			t.Fatal(diags)
		}
		c := parse(t, in)
		if b, _, err := in.Bundle(c.Secrets); err == nil || !strings.Contains(err.Error(), want) {
			t.Errorf("%v of %v, want %q", err, b, want)
		}
	}
	one, other := folder(t, map[string]string{"a.hcl": ""}), folder(t, map[string]string{"b.hcl": ""})
	if _, diags := ReadFleet([]string{one, other}); !diags.HasErrors() || !strings.Contains(diags[len(diags)-1].Summary, "are in different folders") {
		t.Errorf("two folders: %v", diags)
	}
}
