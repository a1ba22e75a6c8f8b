package status

import (
	"context"
	"errors"
	"net"
	"net/http"
	"syscall"

	"github.com/sonde-probe/sonde/cmd/engine/internal/control"
)

// onlyEngine returns an HTTP client for the default address. If no engine listens there, it reaches the
// only one of this user that runs, by its control socket, as sonde reload does.
func onlyEngine() *http.Client {
	return &http.Client{Transport: &http.Transport{DialContext: dialOnly(control.Find)}}
}

// dialOnly connects to an address, or to the only engine that find finds if nothing listens there.
func dialOnly(find func(address string) (path string, err error)) func(ctx context.Context, network, address string) (net.Conn, error) {
	return func(ctx context.Context, network, address string) (net.Conn, error) {
		conn, err := new(net.Dialer).DialContext(ctx, network, address)
		if !errors.Is(err, syscall.ECONNREFUSED) {
			return conn, err
		}
		switch path, several := find(""); {
		case several != nil:
			return nil, several
		case path != "":
			return control.Dial(path)(ctx, network, address)
		}
		return nil, err
	}
}
