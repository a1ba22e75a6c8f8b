//go:build unix

package codecache

import (
	"errors"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"github.com/sonde-probe/sonde/probe"
)

// wantOpen opens the cache in a directory, and checks that the error contains want; "" means no
// error.
func wantOpen(t *testing.T, root, want string) {
	t.Helper()
	e, err := Open(root, 1<<20, nil)
	if err == nil {
		e.Close()
	}
	var wrong *probe.FieldError
	if (err == nil) != (want == "") || err != nil && (!errors.As(err, &wrong) || !strings.Contains(err.Error(), want)) {
		t.Errorf("got %v, want %q", err, want)
	}
}

func TestOnlyAPrivateDirectoryIsUsed(t *testing.T) {
	tests := map[string]struct {
		above, mode os.FileMode
		want        string
	}{
		"private":                             {0o755, 0o700, ""},
		"others may read":                     {0o755, 0o750, "gives other users access"},
		"others may replace it":               {0o777, 0o700, ""}, // as in an emptyDir of Kubernetes
		"others may write to a sticky parent": {0o777 | os.ModeSticky, 0o700, ""},
		"others may write to both":            {0o777, 0o777, "gives other users access"},
	}
	for name, test := range tests {
		t.Run(name, func(t *testing.T) {
			above := filepath.Join(t.TempDir(), "above")
			dir := filepath.Join(above, "cache")
			if err := os.MkdirAll(dir, 0o700); err != nil {
				t.Fatal(err)
			}
			for path, mode := range map[string]os.FileMode{dir: test.mode, above: test.above} {
				if err := os.Chmod(path, mode); err != nil { // Mkdir applies the umask
					t.Fatal(err)
				}
			}
			wantOpen(t, dir, test.want)
		})
	}
}

// Users who may rename the directory replace it with their own.
func TestADirectoryThatWasReplacedIsNotUsed(t *testing.T) {
	root := filepath.Join(t.TempDir(), "cache")
	keep(t, root, "a", "code", 0)
	e := open(t, root, "a", 1<<20)
	defer e.Close()
	if err := os.Rename(root, root+"-moved"); err != nil {
		t.Fatal(err)
	}
	if err := os.Mkdir(root, 0o700); err != nil {
		t.Fatal(err)
	}
	if err := os.WriteFile(filepath.Join(root, e.name), []byte("evil"), 0o600); err != nil {
		t.Fatal(err)
	}
	if got := codeOf(t, e); got != "code" {
		t.Errorf("got %q", got)
	}
	if err := e.Store(strings.NewReader("new")); err != nil || codeOf(t, e) != "new" {
		t.Errorf("got %q, %v", codeOf(t, e), err)
	}
	if os.Geteuid() != 0 {
		t.Skip("a directory of another user needs root")
	}
	const nobody = 65534
	if err := os.Chown(root, nobody, nobody); err != nil {
		t.Fatal(err)
	}
	wantOpen(t, root, "belongs to another user")
}

func TestASymbolicLinkIsRejected(t *testing.T) {
	root := t.TempDir()
	real, link := filepath.Join(root, "real"), filepath.Join(root, "link")
	if err := os.Mkdir(real, 0o700); err != nil {
		t.Fatal(err)
	}
	if err := os.Symlink(real, link); err != nil {
		t.Fatal(err)
	}
	wantOpen(t, link, "is not a directory")
	wantOpen(t, filepath.Join(link, "cache"), "") // its path may contain links
}
