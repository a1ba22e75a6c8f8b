//go:build unix

package wasmhost

import (
	"os"
	"path/filepath"
	"strings"
	"testing"
)

func TestOnlyAPrivateDirectoryHoldsCode(t *testing.T) {
	root := t.TempDir()
	tests := map[string]struct {
		above, mode os.FileMode
		want        string // of the error; empty for none
	}{
		"mine alone":              {0o755, 0o700, ""},
		"others may read":         {0o755, 0o750, "others must have no rights"},
		"others may put one":      {0o777, 0o700, "others must not write there"},
		"others may put theirs":   {0o777 | os.ModeSticky, 0o700, ""},
		"a group may, by itself":  {0o775, 0o700, ""},
		"others may write to all": {0o777, 0o777, "others must have no rights"},
	}
	for name, test := range tests {
		t.Run(name, func(t *testing.T) {
			above := filepath.Join(root, name)
			dir := filepath.Join(above, "cache")
			if err := os.MkdirAll(dir, 0o700); err != nil {
				t.Fatal(err)
			}
			for path, mode := range map[string]os.FileMode{dir: test.mode, above: test.above} {
				if err := os.Chmod(path, mode); err != nil { // Mkdir's modes are masked
					t.Fatal(err)
				}
			}
			err := checkPrivate(dir)
			if (err == nil) != (test.want == "") || err != nil && !strings.Contains(err.Error(), test.want) {
				t.Errorf("got %v, want %q", err, test.want)
			}
		})
	}
}

func TestALinkIsNoDirectoryForCode(t *testing.T) {
	root := t.TempDir()
	real, link := filepath.Join(root, "real"), filepath.Join(root, "link")
	if err := os.Mkdir(real, 0o700); err != nil {
		t.Fatal(err)
	}
	if err := os.Symlink(real, link); err != nil {
		t.Fatal(err)
	}
	if err := checkPrivate(link); err == nil || !strings.Contains(err.Error(), "is not a directory") {
		t.Errorf("got %v", err)
	}
	if err := os.Mkdir(filepath.Join(real, "cache"), 0o700); err != nil {
		t.Fatal(err)
	}
	if err := checkPrivate(filepath.Join(link, "cache")); err != nil { // the way to it may have links
		t.Error(err)
	}
}

func TestAnothersDirectoryHoldsNoCode(t *testing.T) {
	if os.Geteuid() != 0 {
		t.Skip("only root can give a directory away")
	}
	above := filepath.Join(t.TempDir(), "theirs")
	dir := filepath.Join(above, "cache")
	if err := os.MkdirAll(dir, 0o700); err != nil {
		t.Fatal(err)
	}
	const nobody = 65534
	if err := os.Chown(above, nobody, nobody); err != nil {
		t.Fatal(err)
	}
	if err := checkPrivate(dir); err == nil || !strings.Contains(err.Error(), "above it belongs to another user") {
		t.Errorf("got %v", err)
	}
	if err := os.Chown(dir, nobody, nobody); err != nil {
		t.Fatal(err)
	}
	if err := checkPrivate(dir); err == nil || !strings.Contains(err.Error(), "cache belongs to another user") {
		t.Errorf("got %v", err)
	}
}
