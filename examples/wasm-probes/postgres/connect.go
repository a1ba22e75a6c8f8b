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

// maxMessage bounds what the server may say at once, in bytes: a row, say.
const maxMessage = 64 << 10

// session is a login.
type session struct {
	*pgconn.PgConn
	conn net.Conn // which it uses
}

// options returns what the library is told in each attempt. All that matters is set
// here: what it would find in the environment or in files is not there in a sandbox.
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

// errSecond is what the library gets when it connects once more in the background, to
// cancel a query. The server does that by itself: see limited.
var errSecond = errors.New("a second connection is not wanted")

// end ends the session, and returns when nothing of it runs any more.
func (s session) end(ctx context.Context) {
	_ = s.Close(ctx) // of errors there is nothing to say: the attempt is over
	_ = s.conn.Close()
	<-s.CleanupDone()
}

// dial connects to the target, and has the host make the handshake of TLS where it is
// asked for: that is much faster than crypto/tls in the sandbox.
func dial(ctx context.Context, t guest.Target[settings]) (net.Conn, error) {
	address := ":" + t.Settings.Port
	if t.Settings.TLS == nil {
		return t.DialContext(ctx, "tcp", address)
	}
	c, err := t.Dial(ctx, "tcp", address)
	if err != nil {
		return nil, err
	}
	if err := startTLS(ctx, c, *t.Settings.TLS); err != nil {
		c.Close()
		return nil, err
	}
	return c.NetConn()
}

// errNoTLS says that the server goes on without TLS, which it was not asked to.
var errNoTLS = errors.New("the server does not offer TLS")

// startTLS asks the server for TLS (PostgreSQL's documentation, "SSL Session
// Encryption" in the chapter on the protocol).
func startTLS(ctx context.Context, c *guest.Conn, config guest.TLS) error {
	if deadline, ok := ctx.Deadline(); ok {
		// An error shows itself with the first read.
		_ = c.SetDeadline(deadline)
	}
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

// reasons are those of the server's errors (PostgreSQL's documentation, appendix A).
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
		r.Detail = inner // without what the library thinks of the address
	}
	return r
}
