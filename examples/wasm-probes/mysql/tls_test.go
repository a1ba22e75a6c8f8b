package main

import (
	"crypto/ecdsa"
	"crypto/elliptic"
	"crypto/rand"
	"crypto/tls"
	"net"
	"testing"

	"github.com/sonde-probe/sonde/guest"
)

// TestACertificateThatCannotBeReadIsNoFaultWithoutVerification performs a handshake with a server whose certificate is
// invalid.
func TestACertificateThatCannotBeReadIsNoFaultWithoutVerification(t *testing.T) {
	key, err := ecdsa.GenerateKey(elliptic.P256(), rand.Reader)
	if err != nil {
		t.Fatal(err)
	}
	no, yes := false, true
	ours, theirs := net.Pipe()
	done := make(chan struct{})
	go func() {
		defer close(done)
		_ = tls.Server(theirs, &tls.Config{Certificates: []tls.Certificate{{Certificate: [][]byte{[]byte("none")}, PrivateKey: key}}}).Handshake()
		_ = theirs.Close()
	}()
	config, err := tlsConfig(guest.TLS{Verify: &no}, "db.test")
	if err != nil {
		t.Fatal(err)
	}
	err = tls.Client(ours, config).Handshake()
	_ = ours.Close()
	<-done
	if err == nil || !isUnreadable(guest.TLS{Verify: &no}, err) || isUnreadable(guest.TLS{Verify: &yes}, err) {
		t.Errorf("got %v", err)
	}
}
