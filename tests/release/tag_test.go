package release

import (
	"bytes"
	"encoding/json"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"testing"

	"github.com/sonde-probe/sonde/tests/program"
	"github.com/sonde-probe/sonde/tests/tier"
)

const (
	mainModule = "github.com/sonde-probe/sonde"
	version    = "v1.99.0" // of a release that exists only in the test
)

// With the tags of a release, the modules below gateway and fleet can be used without a checkout: go install accepts the command,
// and Caddy's builder finds the requested module. Tags are read from the repository in which they were created, as if they had been
// pushed.
func TestTaggedModulesCanBeInstalled(t *testing.T) {
	tier.Long(t)
	program.OwnRepository(t)
	top, err := filepath.Abs("../..")
	if err != nil {
		t.Fatal(err)
	}
	if _, err := os.Stat(filepath.Join(top, ".git")); err != nil {
		t.Skip("this is not a checkout of git")
	}
	dir := t.TempDir()
	runIn(t, dir, "git", "clone", "--quiet", top, "sonde")
	checkout := filepath.Join(dir, "sonde")
	runIn(t, checkout, "git", "config", "user.name", "test")
	runIn(t, checkout, "git", "config", "user.email", "test@example.com")
	runIn(t, checkout, "dist/tag.sh", version)

	cache := strings.TrimSpace(goIn(t, dir, nil, "env", "GOMODCACHE"))
	env := append(os.Environ(),
		"GOMODCACHE="+filepath.Join(dir, "modules"), "GOFLAGS=-modcacherw", "GOPRIVATE="+mainModule, "GOPROXY=file://"+cache+"/cache/download,https://proxy.golang.org",
		"GIT_CONFIG_COUNT=1", "GIT_CONFIG_KEY_0=url.file://"+checkout+".insteadOf", "GIT_CONFIG_VALUE_0=https://"+mainModule)
	goIn(t, dir, env, "install", "-n", mainModule+"/gateway/xds/cmd/sonde-xds@"+version)
	for _, module := range []string{"gateway/caddy", "gateway/xds"} {
		var got struct{ GoMod string }
		if err := json.Unmarshal([]byte(goIn(t, dir, env, "mod", "download", "-json", mainModule+"/"+module+"@"+version)), &got); err != nil {
			t.Fatal(err)
		}
		if text := readText(t, got.GoMod); !strings.Contains(text, mainModule+" "+version+"\n") || strings.Contains(text, "replace") {
			t.Errorf("%s at %s has this go.mod:\n%s", module, version, text)
		}
		runIn(t, checkout, "git", "checkout", "--quiet", module+"/"+version)
		goIn(t, filepath.Join(checkout, module), env, "list", "-deps", "./...") // go.sum has everything that is needed
	}
}

// goIn returns the standard output of a go command.
func goIn(t *testing.T, dir string, env []string, args ...string) string {
	t.Helper()
	var stderr bytes.Buffer
	c := exec.Command("go", args...)
	c.Dir, c.Env, c.Stderr = dir, env, &stderr
	out, err := c.Output()
	if err != nil {
		t.Fatalf("%v: %v\n%s", c.Args, err, stderr.String())
	}
	return string(out)
}
