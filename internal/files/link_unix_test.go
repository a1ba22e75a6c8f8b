//go:build unix

package files

import (
	"errors"
	"os"
	"path/filepath"
	"strings"
	"testing"
)

// Other users who can write to a directory must not determine, by a link, which file of this user is written.
func TestOnlyLinksThatNobodyElseCanMakeAreFollowed(t *testing.T) {
	for _, test := range []struct {
		mode os.FileMode // of the directory with the link
		uid  int
		want string // in the error
	}{
		{0o755, os.Geteuid(), ""},
		{0o777 | os.ModeSticky, os.Geteuid(), "is writable by all users"},
		{0o755, 54321, "belongs to user 54321"},
	} {
		if test.uid != os.Geteuid() && os.Geteuid() != 0 {
			t.Log("a directory of another user needs root")
			continue
		}
		ours, theirs := t.TempDir(), t.TempDir()
		file, second, first := filepath.Join(ours, "file"), filepath.Join(theirs, "second"), filepath.Join(ours, "first")
		if err := errors.Join(os.WriteFile(file, []byte("old"), 0o600), os.Symlink(file, second), os.Symlink(second, first),
			os.Chown(theirs, test.uid, os.Getegid()), os.Chmod(theirs, test.mode)); err != nil {
			t.Fatal(err)
		}
		for _, link := range []string{second, first} {
			err := Replace(link, []byte("new"), 0o600)
			if (err == nil) != (test.want == "") || err != nil && !strings.Contains(err.Error(), test.want) {
				t.Errorf("the error is %v, want %q", err, test.want)
			}
			want := map[bool]string{true: "new", false: "old"}[test.want == ""]
			if b, err := os.ReadFile(file); err != nil || string(b) != want {
				t.Errorf("the file has %q, want %q: %v", b, want, err)
			}
			if info, err := os.Lstat(link); err != nil || info.Mode()&os.ModeSymlink == 0 {
				t.Errorf("the link is %v: %v", info, err)
			}
		}
	}
}
