package main

import (
	"context"
	"database/sql/driver"
	"errors"
	"fmt"
	"net"

	"github.com/go-sql-driver/mysql"

	"github.com/sonde-probe/sonde/guest"
)

// session is a logged-in connection. It does not use database/sql, which pools connections and
// retries automatically.
type session struct {
	driver.Conn
	wire *wire
}

// maxLogins is the maximum number of logins that an attempt tries.
const maxLogins = 3

// login logs in. It retries if the library reports a malformed response: for ed25519 a server sends
// random bytes, and the library mistakes the last one for a terminator if it is 0, in one of 256
// logins.
func login(ctx context.Context, t guest.Target[settings]) (c *session, err error) {
	for range maxLogins {
		if c, err = loginOnce(ctx, t); !errors.Is(err, mysql.ErrMalformPkt) {
			break
		}
	}
	return c, err
}

// loginOnce logs in. The library dials through the host.
func loginOnce(ctx context.Context, t guest.Target[settings]) (*session, error) {
	s := t.Settings
	c := &session{wire: &wire{secure: s.TLS != nil}}
	config := mysql.NewConfig()
	config.User, config.Passwd, config.DBName = s.User, s.Password, s.Database
	config.Net, config.Addr = "tcp", ":"+s.Port
	config.Logger = silent{} // all logged errors are also returned
	config.DialFunc = func(ctx context.Context, network, address string) (_ net.Conn, err error) {
		c.wire.Conn, err = t.DialContext(ctx, network, address)
		return c.wire, err
	}
	if s.TLS != nil {
		var err error
		if config.TLS, err = tlsConfig(*s.TLS, t.Address); err != nil {
			return nil, err
		}
	}
	connector, err := mysql.NewConnector(config)
	if err != nil {
		return nil, err
	}
	return c, c.call(func() (err error) {
		c.Conn, err = connector.Connect(ctx)
		return err
	})
}

type silent struct{}

func (silent) Print(...any) {}

// reasons maps error numbers of MySQL and MariaDB to reasons. Below 1900 both use the same numbers.
var reasons = map[uint16]string{
	1040: "mysql.full", // too many connections
	1203: "mysql.full", // of this user
	1226: "mysql.full", // resource limit of this user
	1044: "mysql.denied",
	1142: "mysql.denied", // a table
	1143: "mysql.denied", // a column
	1227: "mysql.denied", // a privilege of the whole server
	1045: "mysql.auth",
	1698: "mysql.auth", // the account does not authenticate by password
	1820: "mysql.auth", // the password has expired
	1862: "mysql.auth", // expired
	3118: "mysql.auth", // locked, MySQL
	4151: "mysql.auth", // locked, MariaDB
	1049: "mysql.database",
	1047: "mysql.not_ready", // a node of Galera that is not part of its cluster
	3032: "mysql.not_ready", // offline mode
	1053: "mysql.stopping",
	1129: "mysql.blocked", // too many broken connections from here
	1130: "mysql.blocked", // this host is not allowed to connect
	1205: "mysql.timeout", // timeout of a lock
	1317: "mysql.timeout", // interrupted
	1969: "mysql.timeout", // max_statement_time, MariaDB
	3024: "mysql.timeout", // max_execution_time, MySQL
}

// failed returns the result for an error.
func failed(err error) guest.Result {
	var said *mysql.MySQLError
	switch {
	case errors.As(err, &said):
		reason, ok := reasons[said.Number]
		if !ok {
			reason = "mysql.error"
		}
		return guest.Fail(reason, fmt.Sprintf("%s (error %d)", said.Message, said.Number))
	case errors.Is(err, mysql.ErrNoTLS):
		return guest.Fail("mysql.tls", "the server does not offer TLS")
	}
	if reason := tlsReason(err); reason != "" {
		return guest.Fail(reason, err.Error())
	}
	return guest.FailWith("mysql.protocol", err)
}
