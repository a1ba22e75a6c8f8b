// Heartbeat is a plugin that keeps one connection to its target, or a UDP socket. In each attempt
// it sends a beat, which the target must answer.
package main

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"strconv"
	"time"

	"github.com/sonde-probe/sonde/guest"
)

type settings struct {
	Port    string        `sonde:"port,required" doc:"a number from 1 to 65535, or the name of one of the target's ports"`
	Network string        `sonde:"network" default:"tcp" doc:"tcp; or udp, where each beat and each answer is a datagram"`
	Send    string        `sonde:"send" default:"PING {seq}\n" doc:"the beat; {seq} is its number in decimal, {seq32} and {seq64} in bytes, big-endian"`
	Expect  string        `sonde:"expect" default:"PONG {seq}\n" doc:"the answer, with the number of the beat that it answers, if it has one"`
	Hello   string        `sonde:"hello" doc:"text to send first on each connection"`
	Welcome string        `sonde:"welcome" doc:"text that the target must send first on each connection, before or after hello"`
	Format  string        `sonde:"format" default:"text" doc:"format of send, expect, hello and welcome: text or hex"`
	Wait    time.Duration `sonde:"wait" doc:"the maximum time for an answer; default: slightly less than the probe's timeout"`
	Slow    time.Duration `sonde:"slow" doc:"an answer that takes longer is a warning; default: none"`
	Missed  int           `sonde:"missed" default:"1" doc:"how many beats in a row without an answer are a failure; fewer are a warning"`
	TLS     *guest.TLS    `sonde:"tls" doc:"connect over TLS"`

	send, expect   frame
	hello, welcome []byte
}

// Prepare parses the frames.
func (s *settings) Prepare() error {
	var errs [4]error
	s.send, errs[0] = parseFrame("send", s.Send, s.Format)
	s.expect, errs[1] = parseFrame("expect", s.Expect, s.Format)
	s.hello, errs[2] = parseText("hello", s.Hello, s.Format)
	s.welcome, errs[3] = parseText("welcome", s.Welcome, s.Format)
	if err := cmp.Or(errs[:]...); err != nil {
		return err
	}
	return s.check()
}

func (s *settings) check() error {
	switch {
	case s.Network != "tcp" && s.Network != "udp":
		return &guest.FieldError{Field: "network", Problem: fmt.Sprintf("is %q; it must be tcp or udp", s.Network)}
	case s.Network == "udp" && s.TLS != nil:
		return &guest.FieldError{Field: "tls", Problem: `needs network = "tcp"`}
	case s.Network == "udp" && s.Hello != "":
		return &guest.FieldError{Field: "hello", Problem: `needs network = "tcp"`}
	case s.Network == "udp" && s.Welcome != "":
		return &guest.FieldError{Field: "welcome", Problem: `needs network = "tcp"`}
	case s.expect.number == none && len(s.expect.before) == 0:
		return &guest.FieldError{Field: "expect", Problem: "must not be empty"}
	case s.expect.number == decimal && len(s.expect.after) == 0:
		return &guest.FieldError{Field: "expect", Problem: "must have something behind {seq}, which shows where the number ends"}
	case s.expect.number != none && s.send.number == none:
		return &guest.FieldError{Field: "expect", Problem: "has the number of a beat, but send does not"}
	case s.Wait < 0:
		return &guest.FieldError{Field: "wait", Problem: "must not be negative"}
	case s.Slow < 0:
		return &guest.FieldError{Field: "slow", Problem: "must not be negative"}
	case s.Missed < 1:
		return &guest.FieldError{Field: "missed", Problem: "must be 1 or more"}
	}
	return nil
}

// heldKey is the key of the held connection.
const heldKey = "heartbeat"

// attempt sends one beat and waits for the response.
func attempt(ctx context.Context, t guest.Target[settings]) guest.Result {
	link, err := open(ctx, t)
	if err != nil {
		return guest.FailWith("heartbeat.open", err)
	}
	defer link.conn.Close()
	began := time.Now()
	err = link.beat(t.Settings, deadlineOf(ctx, began, t.Settings.Wait))
	took := time.Since(began)
	t.Count("beats", 1)
	var late interface{ Timeout() bool }
	if err != nil && !(errors.As(err, &late) && late.Timeout()) {
		return guest.FailWith("heartbeat.garbage", fmt.Errorf("after %d beats were answered: %w", link.answered, err))
	}
	if err := link.keep(t); err != nil {
		return guest.FailWith("heartbeat.hold", err)
	}
	if link.missed() > 0 {
		t.Count("missed", 1)
		return link.late(t.Settings, took)
	}
	t.Gauge("round_trip_milliseconds", float64(took)/float64(time.Millisecond))
	detail := "beat " + strconv.FormatUint(link.sent, 10) + " was answered in " + took.Round(100*time.Microsecond).String()
	if slow := t.Settings.Slow; slow > 0 && took > slow {
		return guest.Warn("heartbeat.slow", detail)
	}
	return guest.Succeed(detail)
}

// deadlineOf returns the deadline for a response: shortly before the end of the attempt, so that
// there is time to hold the connection.
func deadlineOf(ctx context.Context, now time.Time, wait time.Duration) time.Time {
	end, ok := ctx.Deadline()
	if !ok {
		end = now.Add(time.Minute)
	}
	left := end.Sub(now)
	left -= min(left/10, 20*time.Millisecond)
	if wait > 0 {
		left = min(left, wait)
	}
	return now.Add(left)
}

func init() {
	guest.Register(guest.Plugin{
		Name: "heartbeat", Version: "1.0.0", Doc: "sends beats over one connection or by UDP, and expects answers",
	}, attempt)
}

func main() { guest.Main() }
