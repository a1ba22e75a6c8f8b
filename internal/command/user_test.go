package command

import (
	"errors"
	"io/fs"
	"os"
	"syscall"
	"testing"
)

// If the user database does not exist, or must not be read by this user, that is permanent.
func TestUsersThatDoNotExistAreNotAShortage(t *testing.T) {
	open := func(number syscall.Errno) error { return &fs.PathError{Op: "open", Path: "/etc/passwd", Err: number} }
	for _, test := range []struct {
		number           syscall.Errno
		unknown, passing bool
	}{
		{syscall.ENOENT, true, false},
		{syscall.EACCES, false, false},
		{syscall.EMFILE, false, true},
		{syscall.EIO, false, true},
	} {
		err := open(test.number)
		if isUnknown(err) != test.unknown || !test.unknown && errors.Is(unread(err), ErrLookup) != test.passing {
			t.Errorf("%v: unknown: %v, unread: %v", err, isUnknown(err), unread(err))
		}
	}
}

func TestAUserThatCannotBeReadIsNotMissing(t *testing.T) {
	c := Command{Words: []string{os.Args[0]}, User: "somebody"}
	if err := c.missing(account{}, ErrLookup, os.Stat); err != nil {
		t.Errorf("got %v", err)
	}
	if err := c.missing(account{}, errors.New("there is no user"), os.Stat); err == nil {
		t.Error("got no error")
	}
}
