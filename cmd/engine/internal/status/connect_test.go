package status

import (
	"errors"
	"net"
	"path/filepath"
	"syscall"
	"testing"

	"github.com/sonde-probe/sonde/tests/testsync"
)

// The test does not use the engines of this machine: it provides the result of find.
func TestTheOnlyEngineIsReachedWhereNoneListensOnTheDefaultAddress(t *testing.T) {
	unused, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	unused.Close()
	path := filepath.Join(testsync.SocketDir(t), "s")
	engine, err := net.Listen("unix", path)
	if err != nil {
		t.Fatal(err)
	}
	defer engine.Close()
	several := errors.New("2 engines of this user are running")
	for name, c := range map[string]struct {
		address, path string
		found, want   error
		network       string
	}{
		"none":    {unused.Addr().String(), "", nil, syscall.ECONNREFUSED, ""},
		"one":     {unused.Addr().String(), path, nil, nil, "unix"},
		"several": {unused.Addr().String(), "", several, several, ""},
	} {
		conn, err := dialOnly(func(string) (string, error) { return c.path, c.found })(t.Context(), "tcp", c.address)
		if !errors.Is(err, c.want) {
			t.Errorf("%s: %v, want %v", name, err, c.want)
		}
		if conn != nil {
			if got := conn.RemoteAddr().Network(); got != c.network {
				t.Errorf("%s: by %s", name, got)
			}
			conn.Close()
		}
	}
}
