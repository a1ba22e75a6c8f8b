package gateway

import (
	"errors"
	"log/slog"
	"net"
	"syscall"
	"testing"
)

// shortListener lacks descriptors for its first connections.
type shortListener struct {
	net.Listener
	lacking int
}

func (l *shortListener) Accept() (net.Conn, error) {
	if l.lacking--; l.lacking >= 0 {
		return nil, syscall.EMFILE
	}
	return nil, nil
}

func TestEachFailureToAcceptIsCountedOnce(t *testing.T) {
	s := newSession("edge", Spec{}, slog.New(slog.DiscardHandler))
	l := reportingListener{&shortListener{lacking: 2}, s}
	for range 2 {
		if _, err := l.Accept(); !errors.Is(err, syscall.EMFILE) {
			t.Fatalf("the error is %v", err)
		}
	}
	if st := s.Status(); st.Errors != 2 || st.Error != syscall.EMFILE.Error() {
		t.Errorf("while connections cannot be accepted the status is %+v", st)
	}
	if _, err := l.Accept(); err != nil {
		t.Fatal(err)
	}
	if st := s.Status(); st.Errors != 2 || st.Error != "" {
		t.Errorf("afterwards the status is %+v", st)
	}
}
