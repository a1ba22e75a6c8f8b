package main

import (
	"bytes"
	"context"
	"encoding/binary"
	"fmt"
	"io"
	"slices"
	"time"

	"github.com/sonde-probe/sonde/guest"
)

// link is a connection, or a UDP socket, with the state of its beats. Beats are numbered from 1 on
// each connection.
type link struct {
	conn           *guest.Conn
	sent, answered uint64 // numbers of the last beat sent and of the last beat answered
	rest           []byte // an incomplete response
}

// open returns the held connection, or a new one.
func open(ctx context.Context, t guest.Target[settings]) (*link, error) {
	if conn, ok := t.Held(heldKey); ok {
		l := &link{conn: conn}
		if l.remember(t.State()) {
			return l, nil
		}
		conn.Close()
	}
	conn, err := t.DialPort(ctx, t.Settings.Network, t.Settings.Port, t.Settings.TLS)
	if err != nil {
		return nil, err
	}
	l := &link{conn: conn}
	if err := l.greet(t.Settings); err != nil {
		conn.Close()
		return nil, err
	}
	return l, nil
}

// greet sends hello and expects welcome on a new connection.
func (l *link) greet(s *settings) error {
	if len(s.hello)+len(s.welcome) == 0 {
		return nil
	}
	if len(s.hello) > 0 {
		if _, err := l.conn.Write(s.hello); err != nil {
			return err
		}
	}
	got := make([]byte, len(s.welcome))
	if _, err := io.ReadFull(l.conn, got); err != nil {
		return err
	}
	if !bytes.Equal(got, s.welcome) {
		return fmt.Errorf("the welcome is %q, which was not expected", got[:min(len(got), 64)])
	}
	return nil
}

// readSize is the minimum size of a read.
const readSize = 256

// beat sends a beat and reads until it is answered.
func (l *link) beat(s *settings, deadline time.Time) error {
	if err := l.conn.SetDeadline(deadline); err != nil {
		return err
	}
	l.sent++
	if _, err := l.conn.Write(s.send.append(nil, l.sent)); err != nil {
		return err
	}
	if s.Network == "udp" {
		return l.readDatagrams(s.expect)
	}
	for {
		if err := l.take(s.expect); err != nil || l.missed() == 0 {
			return err
		}
		l.rest = slices.Grow(l.rest, readSize)
		n, err := l.conn.Read(l.rest[len(l.rest):cap(l.rest)])
		if err != nil {
			return err
		}
		l.rest = l.rest[:len(l.rest)+n]
	}
}

// take parses the received responses.
func (l *link) take(expect frame) error {
	for len(l.rest) > 0 {
		seq, n, err := expect.match(l.rest)
		if err != nil || n == 0 {
			return err
		}
		l.rest = l.rest[n:]
		if seq = l.fullNumber(expect, seq); expect.number == none {
			seq = l.answered + 1
		}
		if seq <= l.answered || seq > l.sent {
			return l.unexpected(seq)
		}
		l.answered = seq
	}
	return nil
}

// Limits on the data that a target sends over UDP.
const (
	maxDatagram = 2*maxFrame + digits // bytes of a response
	maxStrays   = 100                 // responses in one attempt to beats that are already answered
)

// readDatagrams reads datagrams until the beat is answered. Each datagram is one response.
// Datagrams may be lost, duplicated or reordered, so a response to an earlier beat is not an error.
func (l *link) readDatagrams(expect frame) error {
	b := make([]byte, maxDatagram)
	for range maxStrays {
		n, err := l.conn.Read(b)
		if err != nil {
			return err
		}
		seq, length, err := expect.match(b[:n])
		if err != nil {
			return err
		}
		if length == 0 || length < n {
			return mismatch(b[:n], false)
		}
		if seq = l.fullNumber(expect, seq); expect.number == none {
			seq = l.sent
		}
		if seq == 0 || seq > l.sent {
			return l.unexpected(seq)
		}
		if l.answered = max(l.answered, seq); l.missed() == 0 {
			return nil
		}
	}
	return fmt.Errorf("%d answers to beats before beat %d came", maxStrays, l.sent)
}

// fullNumber returns the number of a beat from the number in its response, which may have the low
// bits only.
func (l *link) fullNumber(expect frame, seq uint64) uint64 {
	if expect.number == bits32 {
		return l.sent - uint64(uint32(l.sent)-uint32(seq))
	}
	return seq
}

func (l *link) unexpected(seq uint64) error {
	return fmt.Errorf("an answer to beat %d came, but %d beats wait for one, up to beat %d", seq, l.missed(), l.sent)
}

// missed returns the number of unanswered beats.
func (l *link) missed() uint64 { return l.sent - l.answered }

// late returns the result for a beat that was not answered in time.
func (l *link) late(s *settings, took time.Duration) guest.Result {
	detail := fmt.Sprintf("beat %d was not answered in %v, as the %d before it; the last answer was to beat %d",
		l.sent, took.Round(time.Millisecond), l.missed()-1, l.answered)
	// A target that has not answered any beat fails at once.
	if l.answered > 0 && l.missed() < uint64(s.Missed) {
		return guest.Warn("heartbeat.late", detail)
	}
	return guest.Fail("heartbeat.missed", detail)
}

// keep holds the connection for the next attempt.
func (l *link) keep(t guest.Target[settings]) error {
	state := binary.BigEndian.AppendUint64(nil, l.sent)
	state = binary.BigEndian.AppendUint64(state, l.answered)
	if err := t.SetState(append(state, l.rest...)); err != nil {
		return err
	}
	return t.Hold(heldKey, l.conn)
}

// remember decodes the state that keep encoded.
func (l *link) remember(state []byte) bool {
	if len(state) < 16 {
		return false
	}
	l.sent, l.answered = binary.BigEndian.Uint64(state), binary.BigEndian.Uint64(state[8:])
	l.rest = append(l.rest, state[16:]...)
	return true
}
