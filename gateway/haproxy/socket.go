package haproxy

import (
	"context"
	"errors"
	"fmt"
	"io"
	"net"
	"regexp"
	"strconv"
	"strings"
	"time"

	"github.com/sonde-probe/sonde/probe"
)

// Bounds on what HAProxy is asked and may answer.
const (
	exchangeTimeout = 2 * time.Second
	maxAnswer       = 16 << 20
	maxCommands     = 8 << 10 // bytes of commands at once: HAProxy reads up to 16 kB
	maxText         = 200     // bytes of an answer that an error shows
)

// socket is the path of a Unix socket, or a TCP address.
type socket string

// The bits of a server's administrative state that commands set.
const (
	forcedMaint = 0x01
	forcedDrain = 0x08
)

// server is a server of HAProxy.
type server struct {
	name, address, port string
	fqdn                string // whose address it is, by HAProxy; "-" for none
	admin               int
	weight              int
}

// place is the server's address and port.
func (s *server) place() string { return net.JoinHostPort(s.address, s.port) }

// socketError is an error of the socket: HAProxy does not answer, whatever it is asked.
type socketError struct{ error }

func (e socketError) Unwrap() error { return e.error }

func isSocketError(err error) bool {
	socket := socketError{}
	return errors.As(err, &socket)
}

// ask sends commands in one line, and returns the answer, or a socketError.
func (s socket) ask(ctx context.Context, line string) (string, error) {
	answer, err := s.exchange(ctx, line)
	if err != nil {
		return "", socketError{err}
	}
	return answer, nil
}

func (s socket) exchange(ctx context.Context, line string) (string, error) {
	network := "tcp"
	if strings.Contains(string(s), "/") {
		network = "unix"
	}
	ctx, cancel := context.WithTimeout(ctx, exchangeTimeout)
	defer cancel()
	conn, err := (&net.Dialer{}).DialContext(ctx, network, string(s))
	if err != nil {
		return "", err
	}
	defer conn.Close()
	defer context.AfterFunc(ctx, func() { conn.Close() })()
	if _, err := io.WriteString(conn, line+"\n"); err != nil {
		return "", err
	}
	answer, err := io.ReadAll(io.LimitReader(conn, maxAnswer+1))
	switch {
	case err != nil && ctx.Err() != nil:
		return "", fmt.Errorf("no response within %v", exchangeTimeout)
	case err != nil:
		return "", err
	case len(answer) > maxAnswer:
		return "", fmt.Errorf("the response is longer than %d bytes", maxAnswer)
	}
	return string(answer), nil
}

// movedText matches the answer to a command that has set an address, which is no error.
var movedText = regexp.MustCompile(`(?m)^((IP|port) changed from|no need to change the addr)\b.*\n`)

// run runs commands that answer nothing unless they fail, or set an address. One that fails does not keep the others
// from being run; the error is that of the first.
func (s socket) run(ctx context.Context, commands []string) (first error) {
	for len(commands) > 0 {
		n, size := 0, 0
		for n < len(commands) && (n == 0 || size+len(commands[n]) <= maxCommands) {
			size += len(commands[n]) + 2
			n++
		}
		answer, err := s.ask(ctx, strings.Join(commands[:n], "; "))
		if err != nil {
			return err
		}
		if text := probe.OneLine(movedText.ReplaceAllString(answer, ""), maxText); text != "" && first == nil {
			first = fmt.Errorf("HAProxy says: %s", text)
		}
		commands = commands[n:]
	}
	return first
}

// columns are those of "show servers state" that are used.
var columns = []string{"srv_name", "srv_addr", "srv_port", "srv_fqdn", "srv_admin_state", "srv_uweight"}

// servers returns the servers of a backend.
func (s socket) servers(ctx context.Context, backend string) ([]server, error) {
	answer, err := s.ask(ctx, "show servers state "+backend)
	if err != nil {
		return nil, err
	}
	return parseServers(answer)
}

// parseServers reads the answer to "show servers state": the version 1, a line with the names
// of the columns, and a line for each server.
func parseServers(answer string) (all []server, err error) {
	version, rest, _ := strings.Cut(answer, "\n")
	header, rows, ok := strings.Cut(rest, "\n")
	if version != "1" || !ok || !strings.HasPrefix(header, "# ") {
		return nil, fmt.Errorf("HAProxy says: %s", probe.OneLine(answer, maxText))
	}
	at := map[string]int{}
	for i, name := range strings.Fields(header)[1:] {
		at[name] = i
	}
	for _, name := range columns {
		if _, ok := at[name]; !ok {
			return nil, fmt.Errorf("the servers' state has no column %s", name)
		}
	}
	for row := range strings.Lines(rows) {
		fields := strings.Fields(row)
		switch {
		case len(fields) == 0:
			continue
		case len(fields) < len(at):
			return nil, errors.New("the servers' state has a truncated line")
		}
		one := server{name: fields[at["srv_name"]], address: fields[at["srv_addr"]], port: fields[at["srv_port"]], fqdn: fields[at["srv_fqdn"]]}
		var adminErr, weightErr error
		one.admin, adminErr = strconv.Atoi(fields[at["srv_admin_state"]])
		one.weight, weightErr = strconv.Atoi(fields[at["srv_uweight"]])
		if err := errors.Join(adminErr, weightErr); err != nil {
			return nil, fmt.Errorf("the state of server %s: %w", probe.CleanText(one.name, maxText), err)
		}
		all = append(all, one)
	}
	return all, nil
}
