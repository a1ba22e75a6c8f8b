package command

import (
	"context"
	"os"

	"golang.org/x/sys/unix"
)

// cancelEvent wakes a thread in poll(2) when a context is done: its descriptor becomes readable.
type cancelEvent struct {
	fd      int // an eventfd; -1 if the context is never done
	stop    func() bool
	written chan struct{} // closed after the write to fd
}

func newCancelEvent(ctx context.Context) (*cancelEvent, error) {
	if ctx.Done() == nil {
		return &cancelEvent{fd: -1}, nil
	}
	fd, err := unix.Eventfd(0, unix.EFD_CLOEXEC|unix.EFD_NONBLOCK)
	if err != nil {
		return nil, os.NewSyscallError("eventfd", err)
	}
	e := &cancelEvent{fd: fd, written: make(chan struct{})}
	e.stop = context.AfterFunc(ctx, e.write)
	return e, nil
}

func (e *cancelEvent) write() {
	defer close(e.written)
	_, _ = unix.Write(e.fd, []byte{1, 0, 0, 0, 0, 0, 0, 1})
}

// close closes the descriptor once write can no longer use it: its number may be reused for another file.
func (e *cancelEvent) close() {
	if e.fd < 0 {
		return
	}
	if !e.stop() {
		<-e.written
	}
	closeFD(e.fd)
}
