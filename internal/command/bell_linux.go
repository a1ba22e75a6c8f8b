package command

import (
	"context"
	"os"

	"golang.org/x/sys/unix"
)

// bell wakes a thread that is in poll(2) when a context is done: its descriptor
// can be read from then on.
type bell struct {
	fd   int // an eventfd; -1 when the context is never done
	stop func() bool
	rung chan struct{} // closed when ringing is over
}

func newBell(ctx context.Context) (*bell, error) {
	if ctx.Done() == nil {
		return &bell{fd: -1}, nil
	}
	fd, err := unix.Eventfd(0, unix.EFD_CLOEXEC|unix.EFD_NONBLOCK)
	if err != nil {
		return nil, os.NewSyscallError("eventfd", err)
	}
	b := &bell{fd: fd, rung: make(chan struct{})}
	b.stop = context.AfterFunc(ctx, b.ring)
	return b, nil
}

func (b *bell) ring() {
	defer close(b.rung)
	_, _ = unix.Write(b.fd, []byte{1, 0, 0, 0, 0, 0, 0, 1})
}

// close lets go of the descriptor once nobody can write to it any more: its
// number may be another file's right after.
func (b *bell) close() {
	if b.fd < 0 {
		return
	}
	if !b.stop() {
		<-b.rung
	}
	shut(b.fd)
}
