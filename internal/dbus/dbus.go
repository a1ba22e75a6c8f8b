// Package dbus is a client of a D-Bus message bus at a Unix socket. It supports calls with string arguments and any
// response, and signals. See https://dbus.freedesktop.org/doc/dbus-specification.html.
//
// Files: dbus.go has the connection, message.go the messages, decode.go the values in them.
package dbus

import (
	"bufio"
	"context"
	"encoding/hex"
	"errors"
	"fmt"
	"net"
	"net/url"
	"os"
	"strconv"
	"strings"
	"sync"
	"time"
)

// Name and object path of the bus itself.
const (
	busName = "org.freedesktop.DBus"
	busPath = "/org/freedesktop/DBus"
)

// Address returns the path of the first Unix socket in a list of addresses, such as "unix:path=/run/user/1000/bus". A
// path that begins with @ is an abstract socket.
func Address(list string) (string, error) {
	for one := range strings.SplitSeq(list, ";") {
		settings, isUnix := strings.CutPrefix(one, "unix:")
		for s := range strings.SplitSeq(settings, ",") {
			key, value, _ := strings.Cut(s, "=")
			value, err := url.PathUnescape(value)
			switch {
			case !isUnix || err != nil || value == "":
			case key == "path":
				return value, nil
			case key == "abstract":
				return "@" + value, nil
			}
		}
	}
	return "", fmt.Errorf("%q names no Unix socket; want an address such as unix:path=/run/dbus/system_bus_socket", list)
}

// Conn is a connection to a bus. It is safe for concurrent use.
type Conn struct {
	conn   net.Conn
	signal func(Signal)
	closed chan struct{} // closed when reading has ended

	mu      sync.Mutex // guards the fields below, and writes
	serial  uint32     // of the latest call
	waiting map[uint32]chan message
	err     error // the reason; nil while the connection is open
}

// Signal is a signal of an object.
type Signal struct{ Path, Interface, Member string }

// Error is an error response to a call.
type Error struct{ Name, Text string }

// Error implements error.
func (e *Error) Error() string { return e.Text + " (" + e.Name + ")" }

// Dial connects to the bus at a socket, as the user of this process. signal is called for each signal from the bus, by
// the goroutine that reads all messages: it must not block, and must not use the Conn.
func Dial(ctx context.Context, socket string, signal func(Signal)) (*Conn, error) {
	var d net.Dialer
	conn, err := d.DialContext(ctx, "unix", socket)
	if err != nil {
		return nil, err
	}
	c := &Conn{conn: conn, signal: signal, closed: make(chan struct{}), waiting: map[uint32]chan message{}}
	input := bufio.NewReader(conn)
	stop := context.AfterFunc(ctx, func() { _ = conn.SetDeadline(time.Unix(1, 0)) })
	err = authenticate(conn, input)
	if !stop() || err != nil {
		_ = conn.Close()
		return nil, cmpCause(ctx, err)
	}
	go c.read(input)
	if _, err = c.Call(ctx, Call{busName, busPath, busName, "Hello"}); err != nil {
		c.Close()
		return nil, err
	}
	return c, nil
}

// cmpCause returns the error of ctx if it is done, otherwise err.
func cmpCause(ctx context.Context, err error) error {
	if ctx.Err() != nil {
		return ctx.Err()
	}
	return err
}

// maxLine is the maximum size of a response to the authentication, in bytes.
const maxLine = 512

// authenticate sends the ID of this user, which the bus compares with the user of the socket's peer.
func authenticate(conn net.Conn, input *bufio.Reader) error {
	user := hex.EncodeToString([]byte(strconv.Itoa(os.Geteuid())))
	if _, err := conn.Write([]byte("\x00AUTH EXTERNAL " + user + "\r\n")); err != nil {
		return err
	}
	var line []byte
	for len(line) < maxLine && (len(line) == 0 || line[len(line)-1] != '\n') {
		b, err := input.ReadByte()
		if err != nil {
			return err
		}
		line = append(line, b)
	}
	if !strings.HasPrefix(string(line), "OK ") {
		return &Error{Name: busName + ".Error.AuthFailed", Text: fmt.Sprintf("the bus rejected the authentication of this user: %q", line)}
	}
	_, err := conn.Write([]byte("BEGIN\r\n"))
	return err
}

// Match subscribes to the signals that a rule selects.
func (c *Conn) Match(ctx context.Context, rule string) error {
	_, err := c.Call(ctx, Call{busName, busPath, busName, "AddMatch"}, rule)
	return err
}

// Call names a method.
type Call struct{ Destination, Path, Interface, Method string }

// Call calls a method, and returns its result: values as in decode. The error is an *Error if the bus or the callee
// responds with one. Without a response, it is the error of ctx, or the reason why the connection was closed.
func (c *Conn) Call(ctx context.Context, call Call, args ...string) ([]any, error) {
	answer := make(chan message, 1)
	serial, err := c.send(ctx, call, args, answer)
	if err != nil {
		return nil, err
	}
	defer func() {
		c.mu.Lock()
		delete(c.waiting, serial)
		c.mu.Unlock()
	}()
	select {
	case <-ctx.Done():
		return nil, ctx.Err()
	case <-c.closed:
		return nil, c.Err()
	case m := <-answer:
		return m.result()
	}
}

// sendTimeout is the maximum time to write a call. A partly written call makes the connection unusable.
const sendTimeout = 5 * time.Second

func (c *Conn) send(ctx context.Context, call Call, args []string, answer chan message) (serial uint32, err error) {
	c.mu.Lock()
	defer c.mu.Unlock()
	if c.err != nil {
		return 0, c.err
	}
	if err := ctx.Err(); err != nil {
		return 0, err
	}
	c.serial++
	serial = c.serial
	c.waiting[serial] = answer
	_ = c.conn.SetWriteDeadline(time.Now().Add(sendTimeout))
	if _, err = c.conn.Write(encode(serial, call, args)); err != nil {
		delete(c.waiting, serial)
		_ = c.conn.Close()
	}
	return serial, err
}

// read reads messages until the connection is closed.
func (c *Conn) read(input *bufio.Reader) {
	err := error(nil)
	for err == nil {
		var m message
		if m, err = readMessage(input); err == nil {
			c.dispatch(m)
		}
	}
	_ = c.conn.Close()
	c.mu.Lock()
	c.err = err
	c.mu.Unlock()
	close(c.closed)
}

func (c *Conn) dispatch(m message) {
	switch m.kind {
	case kindSignal:
		c.signal(m.Signal)
	case kindReturn, kindError:
		c.mu.Lock()
		answer := c.waiting[m.replyTo]
		delete(c.waiting, m.replyTo)
		c.mu.Unlock()
		if answer != nil {
			answer <- m
		}
	}
}

// Closed returns a channel that is closed when the connection is.
func (c *Conn) Closed() <-chan struct{} { return c.closed }

// Err returns why the connection was closed, or nil while it is open.
func (c *Conn) Err() error {
	c.mu.Lock()
	defer c.mu.Unlock()
	return c.err
}

// Close closes the connection. When it returns, no call of the signal function is running or follows.
func (c *Conn) Close() {
	_ = c.conn.Close()
	<-c.closed
}

// errTooLong is the error for a message that exceeds maxBody.
var errTooLong = errors.New("the answer is too long")
