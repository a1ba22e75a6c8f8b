//go:build unix

package listener_test

import (
	"context"
	"errors"
	"io/fs"
	"net"
	"os"
	"path/filepath"
	"strings"
	"syscall"
	"testing"

	"github.com/sonde-probe/sonde/internal/listener"
	"github.com/sonde-probe/sonde/tests/testsync"
)

// open listens at a Unix socket.
func open(t *testing.T, path string, mode fs.FileMode) net.Listener {
	t.Helper()
	l, err := listener.Listen(t.Context(), "unix:"+path, mode)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { l.Close() })
	return l
}

// leave leaves a socket as a process that was killed does.
func leave(t *testing.T, path string) {
	t.Helper()
	l, err := net.ListenUnix("unix", &net.UnixAddr{Name: path, Net: "unix"})
	if err != nil {
		t.Fatal(err)
	}
	l.SetUnlinkOnClose(false)
	l.Close()
}

// umask changes the umask until the test ends.
func umask(t *testing.T, mask int) {
	old := syscall.Umask(mask)
	t.Cleanup(func() { syscall.Umask(old) })
}

func TestTheModeOfASocketIsTheOneAskedFor(t *testing.T) {
	for _, mask := range []int{0, 0o022, 0o177, 0o777} {
		for _, mode := range []fs.FileMode{listener.ForUser, listener.ForGroup} {
			path := filepath.Join(testsync.SocketDir(t), "s")
			umask(t, mask)
			open(t, path, mode)
			if info, err := os.Lstat(path); err != nil || info.Mode() != mode|fs.ModeSocket {
				t.Errorf("with umask %o and mode %o: %v, %v", mask, mode, info.Mode(), err)
			}
			umask(t, 0o022) // for SocketDir
		}
	}
}

func TestOnlyASocketWithoutAListenerIsReplaced(t *testing.T) {
	dir := testsync.SocketDir(t)
	stale, file := filepath.Join(dir, "stale"), filepath.Join(dir, "file")
	leave(t, stale)
	open(t, stale, listener.ForUser)
	if err := os.WriteFile(file, []byte("kept"), 0o600); err != nil {
		t.Fatal(err)
	}
	for path, want := range map[string]string{
		stale:                      "another process listens",
		file:                       "not a socket",
		filepath.Join(dir, "no/s"): "no such file or directory",
	} {
		if _, err := listener.Listen(t.Context(), "unix:"+path, listener.ForUser); err == nil || !strings.Contains(err.Error(), want) || !strings.Contains(err.Error(), path) {
			t.Errorf("%s: %v, want %q", path, err, want)
		}
	}
	if text, err := os.ReadFile(file); err != nil || string(text) != "kept" {
		t.Errorf("the file is %q, %v", text, err)
	}
}

// The socket of another process that has taken the path meanwhile stays.
func TestASocketIsRemovedByTheListenerThatMadeIt(t *testing.T) {
	path := filepath.Join(testsync.SocketDir(t), "s")
	l := open(t, path, listener.ForUser)
	if err := l.Close(); err != nil {
		t.Fatal(err)
	}
	if _, err := os.Lstat(path); !errors.Is(err, fs.ErrNotExist) {
		t.Errorf("after the end: %v", err)
	}

	l = open(t, path, listener.ForUser)
	if err := os.Rename(path, path+".old"); err != nil {
		t.Fatal(err)
	}
	other := open(t, path, listener.ForUser)
	if err := l.Close(); err != nil {
		t.Fatal(err)
	}
	conn, err := new(net.Dialer).DialContext(context.Background(), "unix", path)
	if err != nil {
		t.Fatalf("the other listener: %v", err)
	}
	conn.Close()
	if got := other.Addr().String(); got != path {
		t.Errorf("its address is %s", got)
	}
}
