package listener

import (
	"context"
	"errors"
	"fmt"
	"io/fs"
	"net"
	"os"
	"strings"
	"sync"
	"syscall"
)

// Modes of Unix sockets.
const (
	ForUser  fs.FileMode = 0o600 // the user of the process, and root, can connect
	ForGroup fs.FileMode = 0o660 // the members of its group can connect as well
)

// Listen listens at a TCP address and port, or on a Unix socket, written unix:PATH, which gets the mode regardless of the umask.
// Listen replaces a socket at PATH on which no process listens any more; it returns an error if a process does, or if PATH is
// another kind of file. Close removes the socket, unless another socket has taken its place.
func Listen(ctx context.Context, address string, mode fs.FileMode) (net.Listener, error) {
	path, unix := strings.CutPrefix(address, "unix:")
	if !unix {
		return new(net.ListenConfig).Listen(ctx, "tcp", address)
	}
	config := net.ListenConfig{Control: setMode(mode)}
	l, err := config.Listen(ctx, "unix", path)
	if errors.Is(err, syscall.EADDRINUSE) {
		if err := removeStale(ctx, path); err != nil {
			return nil, err
		}
		l, err = config.Listen(ctx, "unix", path)
	}
	if err != nil {
		return nil, err
	}
	s := &socket{UnixListener: l.(*net.UnixListener), path: path}
	s.SetUnlinkOnClose(false)
	s.made, err = os.Lstat(path)
	if err == nil {
		err = os.Chmod(path, mode)
	}
	if err != nil {
		return nil, errors.Join(err, s.Close())
	}
	return s, nil
}

// removeStale removes a socket on which no process listens.
func removeStale(ctx context.Context, path string) error {
	info, err := os.Lstat(path)
	switch {
	case errors.Is(err, fs.ErrNotExist):
		return nil
	case err != nil:
		return err
	case info.Mode().Type() != fs.ModeSocket:
		return fmt.Errorf("%s is in use and not a socket: remove it, or listen elsewhere", path)
	}
	conn, err := new(net.Dialer).DialContext(ctx, "unix", path)
	if err == nil {
		conn.Close()
	}
	if !errors.Is(err, syscall.ECONNREFUSED) {
		return fmt.Errorf("%s is in use: another process listens there", path)
	}
	return os.Remove(path)
}

// socket is a listener that removes its socket when it is closed.
type socket struct {
	*net.UnixListener
	path   string
	made   fs.FileInfo
	remove sync.Once
}

// Close implements net.Listener.
func (s *socket) Close() error {
	s.remove.Do(func() {
		if now, err := os.Lstat(s.path); err == nil && os.SameFile(now, s.made) {
			_ = os.Remove(s.path) // otherwise the next listener replaces it
		}
	})
	return s.UnixListener.Close()
}
