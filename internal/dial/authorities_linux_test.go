package dial_test

import (
	"crypto/tls"
	"errors"
	"net"
	"testing"
	"time"

	"github.com/sonde-probe/sonde/internal/dial"
	"github.com/sonde-probe/sonde/probe"
	"github.com/sonde-probe/sonde/tests/dialtest"
	"github.com/sonde-probe/sonde/tests/faulttest"
)

// Crypto/x509 reads the system's authorities once per process, so the test needs its own process.
func TestAuthoritiesThatCannotBeReadAreNotTheTargetsFault(t *testing.T) {
	if !faulttest.InNamespaces(t) {
		return
	}
	authority := dialtest.NewAuthority(t) // no system trusts it
	serverConfig := &tls.Config{Certificates: []tls.Certificate{authority.Sign(t, time.Hour, "shop")}}
	config, err := (*dial.TLS)(nil).Load()
	if err != nil {
		t.Fatal(err)
	}
	listener, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	defer listener.Close()
	var clients []net.Conn // connected while there are descriptors
	for range 3 {
		client, err := net.Dial("tcp", listener.Addr().String())
		if err != nil {
			t.Fatal(err)
		}
		server, err := listener.Accept()
		if err != nil {
			t.Fatal(err)
		}
		go func() {
			defer server.Close()
			_ = tls.Server(server, serverConfig).Handshake() // the client closes the connection
		}()
		clients = append(clients, client)
	}
	handshake := func() error {
		client := clients[0]
		clients = clients[1:]
		_, err := dial.Handshake(t.Context(), client, config, "shop", new(probe.Timings))
		return err
	}
	restore := faulttest.NoDescriptors(t)
	for range 2 {
		var got *dial.Error
		if err := handshake(); !errors.As(err, &got) || got.Outcome != probe.Unknown || got.Reason != probe.ReasonResources {
			t.Errorf("without descriptors: got %+v", err)
		}
	}
	restore()
	var got *dial.Error
	if err := handshake(); !errors.As(err, &got) || got.Outcome != probe.Failure || got.Reason != probe.ReasonTLSUntrusted {
		t.Errorf("with descriptors: got %+v", err)
	}
}
