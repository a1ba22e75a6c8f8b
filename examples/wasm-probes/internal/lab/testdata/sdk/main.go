// Command sdk is a plugin that tests the SDK for Go. The setting does says what an attempt does.
package main

import (
	"bufio"
	"context"
	"fmt"
	"io"
	"math/rand/v2"
	"net"
	"time"

	"github.com/sonde-probe/sonde/guest"
)

type settings struct {
	Port string `sonde:"port,required" doc:"the port to connect to"`
	Does string `sonde:"does" default:"random" doc:"what an attempt does"`
}

func attempt(ctx context.Context, t guest.Target[settings]) guest.Result {
	switch t.Settings.Does {
	case "loop":
		return loop(ctx, t)
	case "apart":
		return apart(ctx, t)
	}
	return random(ctx, t)
}

// random reports a number of math/rand, which it does not seed, after it has looked at the addresses of a closed connection.
func random(ctx context.Context, t guest.Target[settings]) guest.Result {
	conn, err := t.DialContext(ctx, "tcp", ":"+t.Settings.Port)
	if err != nil {
		return guest.FailWith("sdk.dial", err)
	}
	before := conn.RemoteAddr().String()
	conn.Close()
	if after := conn.RemoteAddr().String(); before == "" || after != before {
		return guest.Fail("sdk.address", "it was "+before+", it is "+after)
	}
	return guest.Succeed(fmt.Sprint(rand.Uint64()))
}

// loop uses a connection as client libraries do that read on a goroutine of their own, and then on this one. It holds
// the connection for the next attempt.
func loop(ctx context.Context, t guest.Target[settings]) guest.Result {
	conn, held := t.Held("line")
	if !held {
		var err error
		if conn, err = t.Dial(ctx, "tcp", ":"+t.Settings.Port); err != nil {
			return guest.FailWith("sdk.dial", err)
		}
	}
	lines, failed := make(chan string, 1), make(chan error, 1)
	go func() {
		in := bufio.NewReader(conn)
		for {
			line, err := in.ReadString('\n')
			if err != nil {
				failed <- err
				return
			}
			lines <- line
		}
	}()
	if _, err := io.WriteString(conn, "PING\n"); err != nil {
		return guest.FailWith("sdk.write", err)
	}
	select {
	case <-lines:
	case err := <-failed:
		return guest.FailWith("sdk.read", err)
	case <-ctx.Done():
		return guest.Fail("sdk.deadline", "no line came")
	}
	_ = conn.SetReadDeadline(time.Now()) // ends the goroutine
	if err := <-failed; !err.(net.Error).Timeout() {
		return guest.FailWith("sdk.end", err)
	}
	_ = conn.SetReadDeadline(time.Time{})
	if _, err := io.WriteString(conn, "AGAIN\n"); err != nil {
		return guest.FailWith("sdk.write", err)
	}
	line, err := bufio.NewReader(conn).ReadString('\n')
	if err != nil {
		return guest.FailWith("sdk.read", err)
	}
	if err := t.Hold("line", conn); err != nil {
		return guest.FailWith("sdk.hold", err)
	}
	return guest.Succeed(fmt.Sprintf("%s, held before: %v", line[:len(line)-1], held))
}

// apart dials by package net, as a library does that was given no dialer, after a connection by the host.
func apart(ctx context.Context, t guest.Target[settings]) guest.Result {
	conn, err := t.Dial(ctx, "tcp", ":"+t.Settings.Port)
	if err != nil {
		return guest.FailWith("sdk.dial", err)
	}
	defer conn.Close()
	if _, err := net.Dial("tcp", net.JoinHostPort(t.Address, t.Settings.Port)); err != nil {
		return guest.FailWith("sdk.library", fmt.Errorf("library: %w", err))
	}
	return guest.Succeed("")
}

func init() {
	guest.Register(guest.Plugin{Name: "sdk", Version: "1.0.0", Doc: "Tests the SDK."}, attempt)
}

func main() { guest.Main() }
