package testsync

import (
	"os"
	"testing"
)

// maxTemp is the longest folder of temporary files that leaves room for the path of a Unix socket in it: that has
// at most 103 bytes on macOS, and HAProxy appends a suffix of its own.
const maxTemp = 50

// SocketDir returns a folder that the test's end removes. Its path is short enough for Unix sockets; that of TempDir
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
