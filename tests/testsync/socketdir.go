package testsync

import (
	"os"
	"testing"
)

// maxTemp is the maximum length of the folder for temporary files if paths of Unix sockets must fit below it: they have at most 103
// bytes on macOS, and HAProxy appends its own suffix.
const maxTemp = 50

// SocketDir returns a folder that is removed when the test ends. Its path is short enough for Unix sockets; that of TempDir
// contains the test's name.
func SocketDir(t testing.TB) string {
	t.Helper()
	base := os.TempDir()
	if len(base) > maxTemp {
		base = "/tmp"
	}
	dir, err := os.MkdirTemp(base, "s")
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { os.RemoveAll(dir) })
	return dir
}
