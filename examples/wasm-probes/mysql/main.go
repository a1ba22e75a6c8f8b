// Certificates of appliances may have a negative serial number. Verification does not use it, and curl accepts
// them too.
//go:debug x509negativeserial=1

// Mysql is a plugin that logs in to a MySQL or MariaDB server and runs a query, using the client
// library go-sql-driver/mysql: an open port does not mean that the database works.
package main

import (
	"context"
	"time"

	"github.com/sonde-probe/sonde/guest"
)

type settings struct {
	Port     string        `sonde:"port" default:"3306" doc:"a number from 1 to 65535, or the name of one of the target's ports"`
	User     string        `sonde:"user,required" doc:"the user to log in as"`
	Password string        `sonde:"password,sensitive" doc:"its password; default: none"`
	Database string        `sonde:"database" doc:"the database to use; default: none"`
	Query    string        `sonde:"query" default:"SELECT 1" doc:"a query that must return a row"`
	Expect   string        `sonde:"expect" doc:"the expected first column of the first row, as text; default: any value"`
	Role     string        `sonde:"role" doc:"the expected role: primary, which accepts writes, or replica, whose replication runs; default: either"`
	MaxLag   time.Duration `sonde:"max_lag" doc:"the maximum lag of a replica, in whole seconds; default: unlimited"`
	TLS      *guest.TLS    `sonde:"tls" doc:"connect over TLS; ca_pem must be set, unless verify is false"`
}

// The roles.
const (
	primary = "primary"
	replica = "replica"
)

// Prepare checks combinations of settings.
func (s *settings) Prepare() error {
	switch {
	case s.User == "":
		return &guest.FieldError{Field: "user", Problem: "must not be empty"}
	case s.Query == "":
		return &guest.FieldError{Field: "query", Problem: "must not be empty"}
	case s.Role != "" && s.Role != primary && s.Role != replica:
		return &guest.FieldError{Field: "role", Problem: "must be primary or replica"}
	case s.MaxLag < 0 || s.MaxLag%time.Second != 0:
		return &guest.FieldError{Field: "max_lag", Problem: "must be whole seconds"}
	case s.MaxLag > 0 && s.Role != replica:
		return &guest.FieldError{Field: "role", Problem: "must be replica, as max_lag is set"}
	case s.TLS == nil:
		return nil
	}
	_, err := tlsConfig(*s.TLS, "")
	return err
}

// attempt logs in and runs the queries.
func attempt(ctx context.Context, t guest.Target[settings]) guest.Result {
	s := t.Settings
	c, err := login(ctx, t)
	switch {
	case err != nil && s.TLS != nil && isUnreadable(*s.TLS, err):
		return guest.Result{Outcome: guest.Unknown, Reason: "tls.failed", Detail: err.Error() + ", which says nothing about a server that is not verified"}
	case err != nil:
		return failed(err)
	}
	defer c.Close()
	if err := c.limit(ctx); err != nil {
		return failed(err)
	}
	r := guest.Succeed("logged in")
	switch s.Role {
	case primary:
		r = c.takesWrites(ctx)
	case replica:
		r = c.replicates(ctx, s.MaxLag)
	}
	if r.Outcome == guest.Success {
		r = c.query(ctx, s, r.Detail)
	}
	return r
}

func init() {
	guest.Register(guest.Plugin{
		Name: "mysql", Version: "1.0.0", Doc: "logs in to a MySQL or MariaDB server, and asks it something",
	}, attempt)
}

func main() { guest.Main() }
