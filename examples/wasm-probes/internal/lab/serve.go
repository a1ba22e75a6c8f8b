package lab

import (
	"context"
	"crypto/tls"
	"net"
	"os"
	"path/filepath"
	"strconv"
	"sync"
	"syscall"
	"testing"
	"time"

	"github.com/sonde-probe/sonde/tests/dialtest"
	"github.com/sonde-probe/sonde/tests/program"
)

// Serve serves on a port of 127.0.0.1 in this process and returns the port. A connection is closed
// when serve returns or the test ends.
func Serve(t testing.TB, serve func(c net.Conn)) string {
	t.Helper()
	l, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	ctx, cancel := context.WithCancel(context.Background())
	var running sync.WaitGroup
	running.Go(func() {
		for {
			c, err := l.Accept()
			if err != nil {
				return
			}
			running.Go(func() {
				defer c.Close()
				defer context.AfterFunc(ctx, func() { c.Close() })()
				serve(c)
			})
		}
	})
	t.Cleanup(func() {
		l.Close()
		cancel()
		running.Wait()
	})
	return strconv.Itoa(l.Addr().(*net.TCPAddr).Port)
}

// Demo starts the demo service with the arguments.
func Demo(t testing.TB, args ...string) *Server {
	t.Helper()
	return Start(t, &Server{Name: program.Build(t, program.Demo), Args: args})
}

// Certificate returns a server's certificate for 127.0.0.1 and lab.test, and the authority
// that a client must trust, as PEM.
func Certificate(t testing.TB) (tls.Certificate, string) {
	t.Helper()
	authority := dialtest.NewAuthority(t)
	return authority.Sign(t, time.Hour, "127.0.0.1", "lab.test"), read(t, authority.File)
}

// CertificateFiles writes a Certificate with its authority, and its key, to two files of an
// account. It returns their paths, and the authority as PEM.
func CertificateFiles(t testing.TB, owner *syscall.Credential) (cert, key, authority string) {
	t.Helper()
	pair, authority := Certificate(t)
	certFile, keyFile := dialtest.Files(t, pair)
	dir := Dir(t, owner)
	cert, key = filepath.Join(dir, "cert.pem"), filepath.Join(dir, "key.pem")
	File(t, owner, cert, read(t, certFile)+authority)
	File(t, owner, key, read(t, keyFile))
	return cert, key, authority
}

func read(t testing.TB, file string) string {
	t.Helper()
	text, err := os.ReadFile(file)
	if err != nil {
		t.Fatal(err)
	}
	return string(text)
}
