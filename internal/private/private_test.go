//go:build unix

package private

import (
	"os"
	"path/filepath"
	"strings"
	"testing"
)

// otherID is the ID of a user and group other than this process's.
const otherID = 54321

func TestOnlyThisUserMayUseWhatIsPrivate(t *testing.T) {
	for _, test := range []struct {
		mode  os.FileMode
		owner int
		want  string
	}{
		{0o700, os.Geteuid(), ""},
		{0o000, os.Geteuid(), ""},
		{0o710, os.Geteuid(), "its mode 710 gives other users access; run: chmod go-rwx"},
		{0o704, os.Geteuid(), "its mode 704"},
		{0o700, otherID, "it belongs to another user"},
	} {
		dir := newDir(t, test.mode, test.owner, os.Getegid())
		info, err := os.Lstat(dir)
		if err != nil {
			t.Fatal(err)
		}
		wantError(t, Check(info), test.want)
	}
}

func TestOtherUsersMayNotReplaceAFile(t *testing.T) {
	for _, test := range []struct {
		mode  os.FileMode
		owner int
		group int
		want  string
	}{
		{0o755, os.Geteuid(), os.Getegid(), ""},
		{0o775, os.Geteuid(), os.Getegid(), ""}, // as with umask 002
		{0o757, os.Geteuid(), os.Getegid(), "is writable by all users"},
		{0o777 | os.ModeSticky, os.Geteuid(), os.Getegid(), "is writable by all users"},
		{0o755, os.Geteuid(), otherID, ""},
		{0o775, os.Geteuid(), otherID, "is writable by group 54321, to which this process does not belong"},
		{0o755, otherID, os.Getegid(), "belongs to user 54321, who can replace its files; use another directory, or run: chown"},
	} {
		dir := newDir(t, test.mode, test.owner, test.group)
		wantError(t, CheckParent(filepath.Join(dir, "file")), test.want)
	}
}

func TestOtherUsersMayNotReplaceADirectoryAboveAFile(t *testing.T) {
	for _, test := range []struct {
		mode  os.FileMode
		owner int
		want  string
	}{
		{0o755, os.Geteuid(), ""},
		{0o777 | os.ModeSticky, os.Geteuid(), ""},
		{0o777, os.Geteuid(), "is writable by all users"},
		{0o755, otherID, "belongs to user 54321"},
	} {
		dir := newDir(t, test.mode, test.owner, os.Getegid())
		own := filepath.Join(t.TempDir(), "own")
		if err := os.Mkdir(filepath.Join(dir, "logs"), 0o755); err != nil {
			t.Fatal(err)
		}
		if err := os.Symlink(dir, own); err != nil {
			t.Fatal(err)
		}
		for _, file := range []string{filepath.Join(dir, "app.log"), filepath.Join(dir, "logs", "app.log"), filepath.Join(own, "logs", "app.log")} {
			wantError(t, CheckDirs(file), test.want)
		}
	}
	wantError(t, CheckDirs("/none/at/all/app.log"), "")
}

func TestADirectoryForFilesOfThisUserIsOneThatOnlyItCanWriteTo(t *testing.T) {
	for _, test := range []struct {
		mode  os.FileMode
		owner int
		want  string
	}{
		{0o700, os.Geteuid(), ""},
		{0o755, os.Geteuid(), ""},
		{0o777 | os.ModeSticky, os.Geteuid(), "has mode 1777, so that other users can write to it (chmod go-w)"},
		{0o775, os.Geteuid(), "has mode 775"},
		{0o700, otherID, "belongs to user 54321"},
	} {
		_, err := usable(newDir(t, test.mode, test.owner, os.Getegid()))
		wantError(t, err, test.want)
	}
	t.Setenv("RUNTIME_DIRECTORY", "")
	t.Setenv("XDG_RUNTIME_DIR", newDir(t, 0o700, os.Geteuid(), os.Getegid()))
	if _, err := OfUser(); err != nil {
		t.Error(err)
	}
}

// newDir returns a new directory with a mode, an owner and a group.
func newDir(t *testing.T, mode os.FileMode, owner, group int) string {
	t.Helper()
	if os.Geteuid() != 0 && (owner == otherID || group == otherID) {
		t.Skip("a directory of another user or group needs root")
	}
	dir := t.TempDir()
	if err := os.Chown(dir, owner, group); err != nil {
		t.Fatal(err)
	}
	if err := os.Chmod(dir, mode); err != nil {
		t.Fatal(err)
	}
	return dir
}

// wantError checks that an error contains a text; "" means no error.
func wantError(t *testing.T, err error, want string) {
	t.Helper()
	if (err == nil) != (want == "") || err != nil && !strings.Contains(err.Error(), want) {
		t.Errorf("got %v, want %q", err, want)
	}
}
