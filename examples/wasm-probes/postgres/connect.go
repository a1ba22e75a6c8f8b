package main

import (
	"context"
	"errors"
	"io"
	"net"
	"strings"

	"github.com/jackc/pgx/v5/pgconn"

	"github.com/sonde-probe/sonde/guest"
)

// maxMessage bounds one message of the server, such as a row, in bytes.
const maxMessage = 64 << 10

// session is a logged-in connection.
type session struct {
	*pgconn.PgConn
	conn net.Conn // the connection of PgConn
}

// options returns the library's configuration for an attempt. It sets all fields, because a sandbox
// has no environment and no files.
func (s *settings) options() (*pgconn.Config, error) {
	config, err := pgconn.ParseConfig("postgres://target:1/?sslmode=disable")
	if err != nil {
		return nil, err
	}
	config.User, config.Password, config.Database = s.User, s.Password, s.Database
	config.RuntimeParams = map[string]string{"application_name": "sonde"}
	config.MaxProtocolMessageBodyLen = maxMessage
	return config, nil
}

// login logs in. The library dials through the host.
func login(ctx context.Context, t guest.Target[settings]) (session, error) {
	s := t.Settings
	config := s.config.Copy()
	config.LookupFunc = func(context.Context, string) ([]string, error) { return []string{t.Address}, nil }
	conn := &door{password: s.Password, known: parseKey(t.State()), keep: t.SetState}
	config.DialFunc = func(ctx context.Context, _, _ string) (_ net.Conn, err error) {
		if conn.Conn != nil {
			return nil, errSecond
		}
		conn.Conn, err = dial(ctx, t)
		return conn, err
	}
	c, err := pgconn.ConnectConfig(ctx, config)
	if err != nil {
		return session{}, err
	}
	return session{c, conn}, nil
}

// errSecond rejects the second connection that the library opens to cancel a query. The server
// aborts queries itself: see limited.
var errSecond = errors.New("a second connection is not wanted")

// end ends the session and waits for its goroutines.
func (s session) end(ctx context.Context) {
	_ = s.Close(ctx) // errors are irrelevant: the attempt is over
	_ = s.conn.Close()
	<-s.CleanupDone()
}

// dial connects to the target. If TLS is configured, the host performs the handshake, which is much
// faster than crypto/tls in the sandbox.
func dial(ctx context.Context, t guest.Target[settings]) (net.Conn, error) {
	c, err := t.DialPort(ctx, "tcp", t.Settings.Port, nil)
	if err != nil {
		return nil, err
	}
	if t.Settings.TLS != nil {
		if err := startTLS(c, *t.Settings.TLS); err != nil {
			c.Close()
			return nil, err
		}
	}
	return c, nil
}

// errNoTLS means that the server does not support TLS.
var errNoTLS = errors.New("the server does not offer TLS")

// startTLS requests TLS from the server (PostgreSQL's documentation, "SSL Session Encryption" in
// the chapter on the protocol).
func startTLS(c *guest.Conn, config guest.TLS) error {
	if _, err := c.Write([]byte{0, 0, 0, 8, 0x04, 0xd2, 0x16, 0x2f}); err != nil {
		return err
	}
	answer := make([]byte, 1)
	if _, err := io.ReadFull(c, answer); err != nil {
		return err
	}
	if answer[0] != 'S' {
		return errNoTLS
	}
	return c.StartTLS(config)
}

// reasons maps SQLSTATE codes to reasons (PostgreSQL's documentation, appendix A).
var reasons = map[string]string{
	"28000": "postgres.auth",
	"28P01": "postgres.auth",
	"3D000": "postgres.database",
	"42501": "postgres.denied",
	"53300": "postgres.full",
	"57014": "postgres.timeout",
	"57P01": "postgres.stopping",
	"57P03": "postgres.starting",
}

// failed returns the result for an error.
func failed(err error) guest.Result {
	var said *pgconn.PgError
	switch {
	case errors.As(err, &said):
		reason, ok := reasons[said.Code]
		if !ok {
			reason = "postgres.error"
		}
		return guest.Fail(reason, said.Message+" (SQLSTATE "+said.Code+")")
	case errors.Is(err, errNoTLS):
		return guest.Fail("postgres.tls", errNoTLS.Error())
	}
	r := guest.FailWith("postgres.protocol", err)
	if _, inner, ok := strings.Cut(r.Detail, " (target): "); ok {
		r.Detail = inner // without the library's description of the address
	}
	return r
}
