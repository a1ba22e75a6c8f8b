package shortage

import (
	"errors"
	"io"
	"net"
	"os"
	"syscall"
	"testing"
)

func TestShortagesAreRecognized(t *testing.T) {
	for _, test := range []struct {
		err       error
		is, forks bool
	}{
		{&os.PathError{Op: "open", Path: "/etc/hosts", Err: syscall.EMFILE}, true, true},
		{&net.OpError{Op: "dial", Net: "tcp", Err: os.NewSyscallError("socket", syscall.ENFILE)}, true, true},
		{errors.Join(io.EOF, syscall.ENOMEM), true, true},
		{&os.PathError{Op: "fork/exec", Path: "/bin/sh", Err: syscall.EAGAIN}, false, true},
		{&os.PathError{Op: "fork/exec", Path: "/bin/sh", Err: syscall.ENOENT}, false, false},
		{syscall.ECONNREFUSED, false, false},
		{io.EOF, false, false},
		{nil, false, false},
	} {
		if got := Is(test.err); got != test.is {
			t.Errorf("Is(%v) = %v", test.err, got)
		}
		if got := IsFork(test.err); got != test.forks {
			t.Errorf("IsFork(%v) = %v", test.err, got)
		}
	}
}
