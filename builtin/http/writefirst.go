package httpprobe

import (
	"crypto/tls"
	"net"
	"sync"
)

// writeFirstConn is a connection whose Read blocks until the first Write. Package net/http reads immediately, and writes bytes that
// a server sends before the request to the log of the whole process. With writeFirstConn they are read as a response, and judged.
type writeFirstConn struct {
	net.Conn
	allowRead func()        // may be called repeatedly
	readable  chan struct{} // closed by allowRead
}

// writeFirst returns a writeFirstConn for HTTP/1, and conn itself for HTTP/2, where net/http needs the *tls.Conn.
func writeFirst(conn net.Conn) net.Conn {
	if speaksHTTP2(conn) {
		return conn
	}
	readable := make(chan struct{})
	return &writeFirstConn{conn, sync.OnceFunc(func() { close(readable) }), readable}
}

func speaksHTTP2(conn net.Conn) bool {
	secure, ok := conn.(*tls.Conn)
	return ok && secure.ConnectionState().NegotiatedProtocol == "h2"
}

// inner returns the connection that package dial opened.
func inner(conn net.Conn) net.Conn {
	if c, ok := conn.(*writeFirstConn); ok {
		return c.Conn
	}
	return conn
}

func (c *writeFirstConn) Read(b []byte) (int, error) {
	<-c.readable
	return c.Conn.Read(b)
}

func (c *writeFirstConn) Write(b []byte) (int, error) {
	c.allowRead()
	return c.Conn.Write(b)
}

func (c *writeFirstConn) Close() error {
	c.allowRead()
	return c.Conn.Close()
}
