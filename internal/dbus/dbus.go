// Package dbus is a client of a D-Bus message bus at a Unix socket: calls whose arguments are strings, with any answer, and
// signals. See https://dbus.freedesktop.org/doc/dbus-specification.html.
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

// The bus itself, and the interfaces that each object has.
const (
	busName = "org.freedesktop.DBus"
	busPath = "/org/freedesktop/DBus"
)

// Address returns the path of the first Unix socket in a list of addresses, such as "unix:path=/run/user/1000/bus". A
// name that begins with @ is an abstract one.
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
	return "", fmt.Errorf("%q has no Unix socket, such as unix:path=/run/dbus/system_bus_socket", list)
}

// Conn is a connection to a bus. It is safe for use by multiple goroutines.
type Conn struct {
	conn   net.Conn
	signal func(Signal)
	closed chan struct{} // when no message is read any more

	mu      sync.Mutex // guards the fields below, and writes
	serial  uint32     // of the latest call
	waiting map[uint32]chan message
	err     error // why closed is closed
}

// Signal is a signal of an object.
type Signal struct{ Path, Interface, Member string }

// Error is an error that a call was answered with.
type Error struct{ Name, Text string }

// Error implements error.
func (e *Error) Error() string { return e.Text + " (" + e.Name + ")" }

// Dial connects to the bus at a socket as the user of this process. The function is called with each signal that the bus passes
// on, by one goroutine that reads all messages: it must not block, and must not call the Conn.
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

// cmpCause returns why ctx is done, or else err.
func cmpCause(ctx context.Context, err error) error {
	if ctx.Err() != nil {
		return ctx.Err()
	}
	return err
}

// maxLine bounds the answer to an authentication, in bytes.
const maxLine = 512

// authenticate says which user this is, which the bus compares with that of the socket's peer.
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
		return &Error{Name: busName + ".Error.AuthFailed", Text: fmt.Sprintf("the bus does not accept this user: %q", line)}
	}
	_, err := conn.Write([]byte("BEGIN\r\n"))
	return err
}

// Match has the bus pass signals on that a rule selects.
func (c *Conn) Match(ctx context.Context, rule string) error {
	_, err := c.Call(ctx, Call{busName, busPath, busName, "AddMatch"}, rule)
	return err
}

// Call names a method.
type Call struct{ Destination, Path, Interface, Method string }

// Call calls a method, and returns its answer: values of decode.go. Without an answer the error is that of ctx, or why the
// connection was closed; an answer that is an error is an *Error.
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

// sendTimeout bounds how long the bus may take none of a call. Half of a call would end the connection.
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

// read reads messages until the connection ends.
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

// Closed returns a channel that is closed when the connection has ended.
func (c *Conn) Closed() <-chan struct{} { return c.closed }

// Err returns why the connection has ended, or nil.
func (c *Conn) Err() error {
	c.mu.Lock()
	defer c.mu.Unlock()
	return c.err
}

// Close ends the connection. It returns when no function is called any more.
func (c *Conn) Close() {
	_ = c.conn.Close()
	<-c.closed
}

// errTooLong is the error of a message that this client does not keep.
var errTooLong = errors.New("the answer is too long")
