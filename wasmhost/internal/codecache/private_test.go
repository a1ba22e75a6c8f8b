//go:build unix

package codecache

import (
	"os"
	"path/filepath"
	"strings"
	"testing"
)

func TestOnlyAPrivateDirectoryIsUsed(t *testing.T) {
	root := t.TempDir()
	tests := map[string]struct {
		above, mode os.FileMode
		want        string // of the error; empty for none
	}{
		"private":                             {0o755, 0o700, ""},
		"others may read":                     {0o755, 0o750, "other users must have no access"},
		"others may replace it":               {0o777, 0o700, "other users must not write to it"},
		"others may write to a sticky parent": {0o777 | os.ModeSticky, 0o700, ""},
		"the user's group may write":          {0o775, 0o700, ""},
		"others may write to both":            {0o777, 0o777, "other users must have no access"},
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

func TestASymbolicLinkIsRejected(t *testing.T) {
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
	if err := checkPrivate(filepath.Join(link, "cache")); err != nil { // its path may contain links
		t.Error(err)
	}
}

func TestADirectoryThatAnotherGroupMayReplaceIsRejected(t *testing.T) {
	if os.Geteuid() != 0 {
		t.Skip("changing the group of a directory needs root")
	}
	above := t.TempDir()
	dir := filepath.Join(above, "cache")
	if err := os.Mkdir(dir, 0o700); err != nil {
		t.Fatal(err)
	}
	const nobody = 65534
	if err := os.Chown(above, 0, nobody); err != nil {
		t.Fatal(err)
	}
	for mode, want := range map[os.FileMode]string{0o775: "its group must not write to it", 0o775 | os.ModeSticky: "", 0o755: ""} {
		if err := os.Chmod(above, mode); err != nil {
			t.Fatal(err)
		}
		err := checkPrivate(dir)
		if (err == nil) != (want == "") || err != nil && !strings.Contains(err.Error(), want) {
			t.Errorf("mode %o: got %v, want %q", mode, err, want)
		}
	}
}

func TestADirectoryOfAnotherUserIsRejected(t *testing.T) {
	if os.Geteuid() != 0 {
		t.Skip("changing the owner of a directory needs root")
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
	if err := checkPrivate(dir); err == nil || !strings.Contains(err.Error(), "parent directory "+above+" belongs to another user") {
		t.Errorf("got %v", err)
	}
	if err := os.Chown(dir, nobody, nobody); err != nil {
		t.Fatal(err)
	}
	if err := checkPrivate(dir); err == nil || !strings.Contains(err.Error(), "cache belongs to another user") {
		t.Errorf("got %v", err)
	}
}
