package httpprobe

import (
	"crypto/tls"
	"net"
	"sync"
)

// gate is a connection that is not read before it has been written to. Net/http
// reads at once, and writes to the log what a server says before it is asked:
// bytes of a stranger, in a place that nobody has chosen. Behind a gate they are
// read as an answer, and judged.
type gate struct {
	net.Conn
	open func()        // may be called again
	way  chan struct{} // closed by open
}

// gated puts a gate before a connection that HTTP/1 will be spoken on. HTTP/2
// needs none, and net/http must see its *tls.Conn.
func gated(conn net.Conn) net.Conn {
	if speaksHTTP2(conn) {
		return conn
	}
	way := make(chan struct{})
	return &gate{conn, sync.OnceFunc(func() { close(way) }), way}
}

func speaksHTTP2(conn net.Conn) bool {
	secure, ok := conn.(*tls.Conn)
	return ok && secure.ConnectionState().NegotiatedProtocol == "h2"
}

func (g *gate) Read(b []byte) (int, error) {
	<-g.way
	return g.Conn.Read(b)
}

func (g *gate) Write(b []byte) (int, error) {
	g.open()
	return g.Conn.Write(b)
}

func (g *gate) Close() error {
	g.open()
	return g.Conn.Close()
}
