package gatewaytest

import (
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"testing"

	"github.com/sonde-probe/sonde/tests/tier"
)

// Repository is the address of the repository in the pages.
const Repository = "https://github.com/sonde-probe/sonde"

// Build runs the commands with which a page builds a program, in a clone of the committed tree at top, and returns the path of the
// program in that clone. The test runs only in .ci/run.
func Build(t testing.TB, top, page, program string) string {
	t.Helper()
	tier.CI(t)
	top, err := filepath.Abs(top)
	if err != nil {
		t.Fatal(err)
	}
	if _, err := os.Stat(filepath.Join(top, ".git")); err != nil {
		t.Skip("this is not a checkout of git")
	}
	commands := CodeBlock(t, page, "sh", "git clone "+Repository+"\n")
	dir := t.TempDir()
	c := exec.Command("sh", "-e", "-c", strings.Replace(commands, "git clone "+Repository, "git clone --quiet '"+top+"' sonde", 1))
	c.Dir = dir
	if out, err := c.CombinedOutput(); err != nil {
		t.Fatalf("%s: %v\n%s%s", page, err, commands, out)
	}
	return filepath.Join(dir, "sonde", "bin", program)
}
