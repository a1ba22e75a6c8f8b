package main

import (
	"bufio"
	"bytes"
	"errors"
	"fmt"
	"io"
	"strings"
	"time"

	startime "go.starlark.net/lib/time"
	"go.starlark.net/starlark"

	"github.com/sonde-probe/sonde/guest"
)

// maxRead is the maximum number of bytes that one method call of a connection can return.
const maxRead = 1 << 20

// defaultRead is the default maximum, in bytes, if the script does not pass one.
const defaultRead = 64 << 10

// bufferSize is the buffer size of a connection's reader, in bytes: enough for the responses that
// most scripts read. Larger buffers were most of the memory that an attempt allocated.
const bufferSize = 1 << 10

// conn is a connection, for one attempt.
type conn struct {
	*guest.Conn
	in *bufio.Reader
}

var _ starlark.HasAttrs = (*conn)(nil)

var connMethods = map[string]method[*conn]{
	"write": (*conn).write, "read": (*conn).read, "read_exactly": (*conn).readExactly,
	"read_line": (*conn).readLine, "read_until": (*conn).readUntil, "read_all": (*conn).readAll,
	"start_tls": (*conn).startTLS, "set_timeout": (*conn).setTimeout, "info": (*conn).info, "close": (*conn).close,
}

func (c *conn) String() string        { return "connection" }
func (c *conn) Type() string          { return "connection" }
func (c *conn) Freeze()               {}
func (c *conn) Truth() starlark.Bool  { return true }
func (c *conn) Hash() (uint32, error) { return 0, errors.New("connection is not hashable") }

// AttrNames returns the names of the connection's methods.
func (c *conn) AttrNames() []string { return namesOf(connMethods) }

// Attr returns a method.
func (c *conn) Attr(name string) (starlark.Value, error) { return bind(connMethods, name, c), nil }

// dial connects: dial("tcp", 6379), dial("tls", "example.com:443", server_name = "example.com").
func (t *target) dial(a arguments) (starlark.Value, error) {
	var network string
	var address starlark.Value
	tls := newTLSArgs()
	if err := a.read(tls.pairs("network", &network, "address", &address)...); err != nil {
		return nil, err
	}
	text, err := addressOf(address)
	if err != nil {
		return nil, err
	}
	c, err := t.connect(network, text, tls)
	if err != nil {
		return nil, err
	}
	return t.add(c), nil
}

func addressOf(v starlark.Value) (string, error) {
	switch v := v.(type) {
	case starlark.Int:
		return ":" + v.String(), nil // the target's own address
	case starlark.String:
		return string(v), nil
	}
	return "", fmt.Errorf("dial: address is %s, must be a port number or a string host:port", v.Type())
}

func (t *target) connect(network, address string, tls tlsArgs) (c *guest.Conn, err error) {
	options, err := tls.options()
	if err != nil {
		return nil, err
	}
	if network == "tls" {
		c, err = t.host.DialTLS(t.ctx, address, options)
	} else {
		c, err = t.host.Dial(t.ctx, network, address)
	}
	if err != nil {
		return nil, &targetError{"script.dial", err}
	}
	return c, nil
}

// add returns the Starlark value of a connection, and registers it to be closed at the end of the
// attempt.
func (t *target) add(c *guest.Conn) *conn {
	own := &conn{c, bufio.NewReaderSize(c, bufferSize)}
	t.open = append(t.open, own)
	return own
}

// close closes all connections of the attempt.
func (t *target) close() {
	for _, c := range t.open {
		c.Close()
	}
}

// hold keeps a connection for the next attempt.
func (t *target) hold(a arguments) (starlark.Value, error) {
	var key string
	var c *conn
	if err := a.read("key", &key, "connection", &c); err != nil {
		return nil, err
	}
	if n := c.in.Buffered(); n > 0 {
		return nil, a.errorf("%d bytes of the connection have not been read", n)
	}
	return starlark.None, t.host.Hold(key, c.Conn)
}

// held returns the connection that an earlier attempt held, or None.
func (t *target) held(a arguments) (starlark.Value, error) {
	var key string
	if err := a.read("key", &key); err != nil {
		return nil, err
	}
	c, ok := t.host.Held(key)
	if !ok {
		return starlark.None, nil
	}
	return t.add(c), nil
}

func (c *conn) write(a arguments) (starlark.Value, error) {
	var data starlark.Value
	if err := a.read("data", &data); err != nil {
		return nil, err
	}
	b, err := a.bytes(data)
	if err != nil {
		return nil, err
	}
	if _, err = c.Conn.Write(b); err != nil {
		return nil, &targetError{"script.write", err}
	}
	return starlark.None, nil
}

// read returns the available bytes, at most n, or an empty string at the end.
func (c *conn) read(a arguments) (starlark.Value, error) {
	n, binary := 4096, false
	if err := a.readLength(&n, "n?", &n, "binary?", &binary); err != nil {
		return nil, err
	}
	b := make([]byte, n)
	n, err := c.in.Read(b)
	if errors.Is(err, io.EOF) {
		err = nil
	}
	return received(b[:n], binary, err)
}

// readExactly returns exactly n bytes.
func (c *conn) readExactly(a arguments) (starlark.Value, error) {
	n, binary := 0, false
	if err := a.readLength(&n, "n", &n, "binary?", &binary); err != nil {
		return nil, err
	}
	b := make([]byte, n)
	_, err := io.ReadFull(c.in, b)
	return received(b, binary, err)
}

// readLine returns a line without its end.
func (c *conn) readLine(a arguments) (starlark.Value, error) {
	n := defaultRead
	if err := a.readLength(&n, "max?", &n); err != nil {
		return nil, err
	}
	b, err := c.until(a, []byte("\n"), n)
	return received(bytes.TrimSuffix(bytes.TrimSuffix(b, []byte("\n")), []byte("\r")), false, err)
}

// readUntil returns all bytes up to and including a delimiter.
func (c *conn) readUntil(a arguments) (starlark.Value, error) {
	var delimiter starlark.Value
	n, binary := defaultRead, false
	if err := a.readLength(&n, "delimiter", &delimiter, "max?", &n, "binary?", &binary); err != nil {
		return nil, err
	}
	end, err := a.bytes(delimiter)
	if err != nil {
		return nil, err
	}
	if len(end) == 0 {
		return nil, a.errorf("delimiter must not be empty")
	}
	b, err := c.until(a, end, n)
	return received(b, binary, err)
}

func (c *conn) until(a arguments, end []byte, most int) (b []byte, err error) {
	for !bytes.HasSuffix(b, end) {
		if len(b) == most {
			return nil, &targetError{"script.length", a.errorf("%d bytes without the end", most)}
		}
		next, err := c.in.ReadByte()
		if err != nil {
			return nil, err
		}
		b = append(b, next)
	}
	return b, nil
}

// readAll returns all bytes until the peer closes the connection.
func (c *conn) readAll(a arguments) (starlark.Value, error) {
	n, binary := defaultRead, false
	if err := a.readLength(&n, "max?", &n, "binary?", &binary); err != nil {
		return nil, err
	}
	b, err := io.ReadAll(io.LimitReader(c.in, int64(n)+1))
	if err == nil && len(b) > n {
		return nil, &targetError{"script.length", a.errorf("more than %d bytes", n)}
	}
	return received(b, binary, err)
}

// unexpected converts io.EOF to io.ErrUnexpectedEOF.
func unexpected(err error) error {
	if errors.Is(err, io.EOF) {
		return io.ErrUnexpectedEOF
	}
	return err
}

// received returns the bytes read, as a string or as bytes, or a targetError.
func received(b []byte, binary bool, err error) (starlark.Value, error) {
	if err != nil {
		if known, ok := targetErrorOf(err); ok {
			return nil, known
		}
		return nil, &targetError{"script.read", unexpected(err)}
	}
	if binary {
		return starlark.Bytes(b), nil
	}
	return starlark.String(b), nil
}

// setTimeout sets the timeout of the following reads and writes: a number of seconds, a duration,
// or None for the attempt's own deadline.
func (c *conn) setTimeout(a arguments) (starlark.Value, error) {
	var v starlark.Value
	if err := a.read("timeout", &v); err != nil {
		return nil, err
	}
	const longest = 24 * time.Hour
	d, isDuration := v.(startime.Duration)
	seconds, isNumber := starlark.AsFloat(v)
	switch {
	case v == starlark.None:
		return starlark.None, c.SetDeadline(time.Time{})
	case isDuration && d > 0:
		return starlark.None, c.SetDeadline(time.Now().Add(time.Duration(d)))
	case isNumber && seconds > 0 && seconds < longest.Seconds():
		return starlark.None, c.SetDeadline(time.Now().Add(max(time.Duration(seconds*float64(time.Second)), 1)))
	}
	return nil, a.errorf("timeout is %s, must be a positive number of seconds, a duration, or None", v)
}

func (c *conn) startTLS(a arguments) (starlark.Value, error) {
	tls := newTLSArgs()
	if err := a.read(tls.pairs()...); err != nil {
		return nil, err
	}
	options, err := tls.options()
	if err != nil {
		return nil, err
	}
	if err := c.StartTLS(options); err != nil {
		return nil, &targetError{"script.tls", err}
	}
	return starlark.None, nil
}

// connInfo maps the names that info accepts to properties of a connection.
var connInfo = map[string]guest.Info{
	"remote": guest.InfoRemote, "local": guest.InfoLocal, "alpn": guest.InfoALPN, "tls": guest.InfoTLS, "certificate": guest.InfoCertificate,
}

func (c *conn) info(a arguments) (starlark.Value, error) {
	var name string
	if err := a.read("name", &name); err != nil {
		return nil, err
	}
	what, ok := connInfo[name]
	if !ok {
		return nil, a.errorf("%q is unknown: use one of %s", name, strings.Join(namesOf(connInfo), ", "))
	}
	return starlark.String(c.Info(what)), nil
}

func (c *conn) close(a arguments) (starlark.Value, error) {
	if err := a.read(); err != nil {
		return nil, err
	}
	return starlark.None, c.Close()
}

// tlsArgs are the arguments of a TLS client.
type tlsArgs struct {
	serverName, ca, cert, key string
	verify                    bool
	alpn                      *starlark.List
}

func newTLSArgs() tlsArgs { return tlsArgs{verify: true} }

// pairs returns arguments for UnpackArgs: first, followed by those of a TLS client.
func (a *tlsArgs) pairs(first ...any) []any {
	return append(first, "server_name?", &a.serverName, "verify?", &a.verify, "ca_pem?", &a.ca,
		"cert_pem?", &a.cert, "key_pem?", &a.key, "alpn?", &a.alpn)
}

func (a *tlsArgs) options() (guest.TLS, error) {
	t := guest.TLS{ServerName: a.serverName, Verify: &a.verify, CA: a.ca, Cert: a.cert, Key: a.key}
	if a.alpn == nil {
		return t, nil
	}
	for v := range a.alpn.Elements() {
		name, ok := starlark.AsString(v)
		if !ok {
			return t, fmt.Errorf("alpn has %s, must be a list of strings", v.Type())
		}
		t.ALPN = append(t.ALPN, name)
	}
	return t, nil
}
