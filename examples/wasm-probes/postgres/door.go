package main

import (
	"encoding/binary"
	"io"
	"net"

	"github.com/jackc/pgx/v5/pgproto3"
)

// door is the connection that the library uses. It handles SCRAM authentication itself: SCRAM
// hashes the password several thousand times, which takes 70 ms in a sandbox, and door reuses the
// hash in later attempts. To the library the server appears to require no authentication.
type door struct {
	net.Conn
	password string
	known    key                // key of the previous attempt
	keep     func([]byte) error // stores the key for the next attempt
	passed   bool               // the library reads from the connection directly
	read     []byte
}

// The types of server messages and of authentication requests that door handles (PostgreSQL's
// documentation, "Message Formats").
const (
	kindError          = 'E'
	kindAuthentication = 'R'
	askSASL            = 10
	askSASLContinue    = 11
	askSASLFinal       = 12
)

// Read reads the rest of the last message, or the next one.
func (d *door) Read(p []byte) (int, error) {
	if len(d.read) == 0 && !d.passed {
		if err := d.next(); err != nil {
			return 0, err
		}
	}
	if len(d.read) == 0 {
		return d.Conn.Read(p)
	}
	n := copy(p, d.read)
	d.read = d.read[n:]
	return n, nil
}

// next handles authentication and reads the next message for the library.
func (d *door) next() error {
	m, err := d.message()
	if err != nil {
		return err
	}
	if m.asks(askSASL) && plain(d.password) {
		if m, err = d.scram(m); err != nil {
			return err
		}
	}
	d.read = m
	d.passed = d.passed || m[0] == kindError || m[0] == kindAuthentication
	return nil
}

// message is one message of the server: its type, its length, and its content.
type message []byte

const messageHead = 5

// message reads a message. If the header is invalid, it reads only the header.
func (d *door) message() (message, error) {
	m := make(message, messageHead)
	if _, err := io.ReadFull(d.Conn, m); err != nil {
		return nil, err
	}
	n := binary.BigEndian.Uint32(m[1:])
	if n < 4 || n > 4+maxMessage {
		d.passed = true // the library returns the error
		return m, nil
	}
	m = append(m, make([]byte, n-4)...)
	_, err := io.ReadFull(d.Conn, m[messageHead:])
	if err == io.EOF {
		err = io.ErrUnexpectedEOF
	}
	return m, err
}

// asks reports whether the message is an authentication request of a type.
func (m message) asks(what uint32) bool {
	return m[0] == kindAuthentication && len(m) >= messageHead+4 && binary.BigEndian.Uint32(m[messageHead:]) == what
}

// step returns the data of an authentication request.
func (m message) step() string { return string(m[messageHead+4:]) }

// say sends a message and returns the response.
func (d *door) say(m pgproto3.FrontendMessage) (message, error) {
	b, err := m.Encode(nil)
	if err != nil {
		return nil, err
	}
	if _, err := d.Conn.Write(b); err != nil {
		return nil, err
	}
	return d.message()
}
