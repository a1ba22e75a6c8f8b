// Postgres is a plugin that logs in to a PostgreSQL server and runs a query, using pgconn, the
// lower layer of the client library pgx.
package main

import (
	"context"
	"time"

	"github.com/jackc/pgx/v5/pgconn"

	"github.com/sonde-probe/sonde/guest"
)

type settings struct {
	Port     string        `sonde:"port" default:"5432" doc:"a number from 1 to 65535, or the name of one of the target's ports"`
	User     string        `sonde:"user,required" doc:"the user to log in as"`
	Password string        `sonde:"password,sensitive" doc:"its password; default: none"`
	Database string        `sonde:"database" default:"postgres" doc:"the database to connect to"`
	Query    string        `sonde:"query" doc:"a query that must return a row; default: login is enough"`
	Expect   string        `sonde:"expect" doc:"the expected first column of the first row, as text; default: any value"`
	Role     string        `sonde:"role" doc:"the expected role: primary, or standby, which is in recovery; default: either"`
	MaxLag   time.Duration `sonde:"max_lag" doc:"the maximum age of the last change that a standby has, unless it has everything that its primary has sent; default: unlimited"`
	TLS      *guest.TLS    `sonde:"tls" doc:"connect over TLS"`

	config *pgconn.Config
}

// The roles.
const (
	primary = "primary"
	standby = "standby"
)

// Prepare checks combinations of settings, and configures the library.
func (s *settings) Prepare() (err error) {
	switch {
	case s.User == "":
		return &guest.FieldError{Field: "user", Problem: "must not be empty"}
	case s.Database == "":
		return &guest.FieldError{Field: "database", Problem: "must not be empty"}
	case s.Role != "" && s.Role != primary && s.Role != standby:
		return &guest.FieldError{Field: "role", Problem: "must be primary or standby"}
	case s.MaxLag < 0:
		return &guest.FieldError{Field: "max_lag", Problem: "must not be negative"}
	case s.MaxLag > 0 && s.Role == primary:
		return &guest.FieldError{Field: "max_lag", Problem: "goes with a standby only"}
	case s.Expect != "" && s.Query == "":
		return &guest.FieldError{Field: "query", Problem: "must be set, as expect is"}
	}
	s.config, err = s.options()
	return err
}

// attempt logs in and runs the queries.
func attempt(ctx context.Context, t guest.Target[settings]) guest.Result {
	s := t.Settings
	c, err := login(ctx, t)
	if err != nil {
		return failed(err)
	}
	defer c.end(ctx)
	r := guest.Succeed("logged in to PostgreSQL " + c.ParameterStatus("server_version"))
	if s.Role != "" || s.MaxLag > 0 {
		r = recovery(ctx, c, s)
	}
	if r.Outcome == guest.Success && s.Query != "" {
		r = query(ctx, c, s, r.Detail)
	}
	return r
}

func init() {
	guest.Register(guest.Plugin{
		Name: "postgres", Version: "1.0.0", Doc: "logs in to a PostgreSQL server, and asks it something",
	}, attempt)
}

func main() { guest.Main() }
