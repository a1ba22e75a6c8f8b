package process

import (
	"context"
	"errors"
	"log/slog"
	"net"
	"os"
	"path/filepath"
	"strings"
	"sync"
	"syscall"
	"time"

	"golang.org/x/sys/unix"

	"github.com/sonde-probe/sonde/internal/private"
	"github.com/sonde-probe/sonde/restart/process/internal/guard"
)

// notifier reads the messages that the processes of one instance send to its socket by sd_notify(3).
type notifier struct {
	conn    *net.UnixConn
	path    string
	notices chan notice
	closed  chan struct{}
	reading sync.WaitGroup
}

const (
	// maxMessage is the maximum size of a message, in bytes; a longer one is ignored. systemd has the same limit
	// (NOTIFY_BUFFER_MAX).
	maxMessage = 4 << 10
	// messagePause is the minimum time between the reads of two messages: a process that sends faster has to wait.
	messagePause = 10 * time.Millisecond
	// maxMessageFiles is the maximum number of descriptors that are received with a message, and closed; the kernel
	// closes any others.
	maxMessageFiles = 8
)

// listenNotify opens a socket at a path that processes of any user can reach in any network namespace.
func listenNotify(suffix string) (n *notifier, err error) {
	dirs := []string{os.TempDir()}
	if dir, err := private.OfUser(); err == nil {
		dirs = []string{dir, os.TempDir()}
	}
	setCredentials := net.ListenConfig{Control: func(_, _ string, c syscall.RawConn) error {
		var set error
		err := c.Control(func(fd uintptr) { set = unix.SetsockoptInt(int(fd), unix.SOL_SOCKET, unix.SO_PASSCRED, 1) })
		return errors.Join(err, set)
	}}
	var failed error
	for _, dir := range dirs {
		path := filepath.Join(dir, "sonde-notify-"+suffix+".sock")
		conn, err := setCredentials.ListenPacket(context.Background(), "unixgram", path)
		if err != nil {
			failed = errors.Join(failed, err)
			continue
		}
		n = &notifier{conn: conn.(*net.UnixConn), path: path, notices: make(chan notice), closed: make(chan struct{})}
		if err := os.Chmod(path, 0o666); err != nil { // a process may change its user; the sender is checked
			n.close()
			return nil, err
		}
		return n, nil
	}
	return nil, failed
}

// run reads the messages of the guard's descendants until close is called.
func (n *notifier) run(guardPid int, v *vigil, setStatus func(string), log *slog.Logger) {
	n.reading.Go(func() {
		isLogged := false
		for n.next(guardPid, v, setStatus, func(sender int) {
			if !isLogged {
				log.Warn("notification ignored: its sender does not belong to the instance or has exited; systemd-notify waits until it is read", "sender_pid", sender)
			}
			isLogged = true
		}) {
		}
	})
}

// next reads a message, or waits until the deadline of v. It returns false after close.
func (n *notifier) next(guardPid int, v *vigil, setStatus func(string), ignored func(sender int)) bool {
	_ = n.conn.SetReadDeadline(v.until)
	text, sender, err := n.receive()
	switch {
	case errors.Is(err, net.ErrClosed):
		return false
	case errors.Is(err, os.ErrDeadlineExceeded):
		return n.send(v.silent(time.Now()))
	case err == nil && guard.IsDescendant(sender, guardPid):
		for line := range strings.Lines(text) {
			line = strings.TrimSuffix(line, "\n")
			if status, ok := statusOf(line); ok {
				setStatus(status)
			}
			if !n.send(v.take(line, time.Now())) {
				return false
			}
		}
	case err == nil:
		ignored(sender)
	}
	v.read(time.Now())
	select {
	case <-n.closed:
	case <-time.After(messagePause):
	}
	return true
}

// send delivers notices. It returns false after close.
func (n *notifier) send(notices []notice) bool {
	for _, what := range notices {
		select {
		case n.notices <- what:
		case <-n.closed:
			return false
		}
	}
	return true
}

// receive returns the next message and its sender's process ID. It closes the descriptors in the message: the sender of
// BARRIER=1 waits for that. For a message that is too long, the text is empty.
func (n *notifier) receive() (text string, sender int, err error) {
	buffer, control := make([]byte, maxMessage), make([]byte, unix.CmsgSpace(unix.SizeofUcred)+unix.CmsgSpace(4*maxMessageFiles))
	size, controlSize, flags, _, err := n.conn.ReadMsgUnix(buffer, control)
	if err != nil {
		return "", 0, err
	}
	messages, err := unix.ParseSocketControlMessage(control[:controlSize])
	if err != nil {
		return "", 0, err
	}
	for _, m := range messages {
		if from, err := unix.ParseUnixCredentials(&m); err == nil {
			sender = int(from.Pid)
		}
		if fds, err := unix.ParseUnixRights(&m); err == nil {
			for _, fd := range fds {
				_ = unix.Close(fd)
			}
		}
	}
	if flags&unix.MSG_TRUNC != 0 {
		size = 0
	}
	return string(buffer[:size]), sender, nil
}

// close closes the socket, and waits for the reader. On a nil notifier it does nothing.
func (n *notifier) close() {
	if n == nil {
		return
	}
	close(n.closed)
	_ = n.conn.Close()
	_ = os.Remove(n.path)
	n.reading.Wait()
}
