package main

import (
	"context"
	"encoding/binary"
	"fmt"
	"io"
	"net"
	"strings"
	"testing"
	"time"

	"github.com/sonde-probe/sonde/examples/wasm-probes/internal/lab"
	"github.com/sonde-probe/sonde/guest"
	"github.com/sonde-probe/sonde/tests/testsync"
)

func TestPostgres(t *testing.T) {
	lab.Both(t, attempt, func(t *testing.T, way lab.Way) {
		t.Run("AServer", func(t *testing.T) { oneServer(t, way) })
		t.Run("AServerAndItsStandbys", func(t *testing.T) { severalServers(t, way) })
		t.Run("InvalidAnswers", func(t *testing.T) { oddAnswers(t, way) })
		t.Run("WrongSettingsAreNamed", func(t *testing.T) { wrongSettings(t, way) })
	})
}

func oneServer(t *testing.T, way lab.Way) {
	cert, key, authority := lab.CertificateFiles(t, lab.Account(t, "postgres"))
	c := start(t, "ssl=on", "ssl_cert_file="+cert, "ssl_key_file="+key).ready(t, way)
	t.Run("Logins", func(t *testing.T) { logins(t, way, c) })
	t.Run("NewPasswords", func(t *testing.T) { newPasswords(t, way, c) })
	t.Run("Queries", func(t *testing.T) { queries(t, way, c) })
	t.Run("LockedTables", func(t *testing.T) { lockedTables(t, way, c) })
	t.Run("TLS", func(t *testing.T) { overTLS(t, way, c, authority) })
	t.Run("ItsFates", func(t *testing.T) { c.Turns(t, c.asks(t, way, "")) })
}

func severalServers(t *testing.T, way lab.Way) {
	c := start(t).ready(t, way)
	t.Run("NoTLS", func(t *testing.T) {
		lab.Expect(t, c.asks(t, way, `, "tls": {"verify": false}`), guest.Failure, "postgres.tls")
	})
	t.Run("AStandbyThatTakesNobodyYet", func(t *testing.T) { notYet(t, way, c) })
	t.Run("AStandby", func(t *testing.T) { follows(t, way, c) })
}

func logins(t *testing.T, way lab.Way, c cluster) {
	c.exec(t, `
		CREATE ROLE probe LOGIN PASSWORD 'auchgeheim';
		CREATE ROLE clear LOGIN PASSWORD 'auchgeheim';
		CREATE ROLE other LOGIN PASSWORD 'säuregrün';
		SET LOCAL password_encryption = md5;
		CREATE ROLE older LOGIN PASSWORD 'auchgeheim';
		CREATE ROLE many LOGIN PASSWORD 'auchgeheim' CONNECTION LIMIT 0;
		CREATE ROLE old LOGIN PASSWORD 'auchgeheim' VALID UNTIL '2001-01-01'`)
	c.exec(t, `CREATE DATABASE shop`)
	c.exec(t, `REVOKE CONNECT ON DATABASE shop FROM PUBLIC`)
	for settings, reason := range map[string]string{
		`"user": "probe", "password": "auchgeheim"`:                     "",
		`"user": "probe", "password": "auchgeheim", "role": "primary"`:  "", // needs no privileges
		`"user": "clear", "password": "auchgeheim"`:                     "",
		`"user": "older", "password": "auchgeheim"`:                     "",
		`"user": "other", "password": "säuregrün"`:                      "",
		`"user": "clear", "password": "falsch"`:                         "postgres.auth",
		`"user": "older", "password": "falsch"`:                         "postgres.auth",
		`"user": "other", "password": "falsch"`:                         "postgres.auth",
		`"user": "probe", "password": "falsch"`:                         "postgres.auth",
		`"user": "probe"`:                                               "postgres.auth",
		`"user": "nobody", "password": "auchgeheim"`:                    "postgres.auth",
		`"user": "old", "password": "auchgeheim"`:                       "postgres.auth",
		`"user": "many", "password": "auchgeheim"`:                      "postgres.full",
		`"user": "probe", "password": "auchgeheim", "database": "none"`: "postgres.database",
		`"user": "probe", "password": "auchgeheim", "database": "shop"`: "postgres.denied",
	} {
		want := guest.Failure
		if reason == "" {
			want = guest.Success
		}
		lab.Expect(t, way.Must(t, fmt.Sprintf(`{"port": %q, %s}`, c.port, settings)), want, reason)
	}
}

// newPasswords changes the password of a probe that has cached the key of the old one.
func newPasswords(t *testing.T, way lab.Way, c cluster) {
	c.exec(t, `CREATE ROLE changing LOGIN PASSWORD 'geheim'`)
	a := way.Must(t, fmt.Sprintf(`{"port": %q, "user": "changing", "password": "geheim"}`, c.port))
	for range 3 {
		lab.Expect(t, a, guest.Success, "")
	}
	c.exec(t, `ALTER ROLE changing PASSWORD 'geheim'`) // the same, with another salt
	lab.Expect(t, a, guest.Success, "")
	c.exec(t, `ALTER ROLE changing PASSWORD 'anders'`)
	lab.Expect(t, a, guest.Failure, "postgres.auth")
	c.exec(t, `ALTER ROLE changing PASSWORD 'geheim'`)
	lab.Expect(t, a, guest.Success, "")
}

func queries(t *testing.T, way lab.Way, c cluster) {
	c.exec(t, `CREATE TABLE orders (n int); INSERT INTO orders SELECT generate_series(1, 100000)`)
	for _, test := range []struct {
		query, expect, reason, detail string
	}{
		{"SELECT 1", "", "", `"1"`},
		{"SELECT 1", "1", "", `"1"`},
		{"SELECT 1", "2", "postgres.expect", `"1", not "2"`},
		{"SELECT NULL", "", "", `""`},
		{"SELECT true, 'x'", "t", "", `"t"`},
		{"SET search_path = public; SELECT count(*) FROM orders", "100000", "", `"100000"`},
		{"SELECT n FROM orders", "1", "", `"1"`},
		{"SELECT FROM orders", "", "", `""`},
		{"SELECT n FROM orders WHERE n < 0", "", "postgres.expect", "no row"},
		{"ANALYZE orders", "", "postgres.expect", "no row"},
		{"", "", "", "logged in to PostgreSQL "},
		{"SELECT n FROM order", "", "postgres.error", "42601"},
		{"SELECT n FROM ordres", "", "postgres.error", `relation "ordres" does not exist`},
		{"SELECT n FROM orders ORDER BY n LIMIT 3", "1", "", `"1"`},
		{"SELECT 1/(2-n) FROM orders ORDER BY n LIMIT 3", "", "postgres.error", "division by zero"},
		{"SELECT 1/0", "", "postgres.error", "division by zero"},
		{"SELECT repeat('x', 100000)", "", "postgres.protocol", "65536"},
		{"DO $$ BEGIN PERFORM pg_terminate_backend(pg_backend_pid()); END $$", "", "postgres.stopping", "57P01"},
	} {
		want := guest.Failure
		if test.reason == "" {
			want = guest.Success
		}
		r := lab.Expect(t, c.asks(t, way, fmt.Sprintf(`, "query": %q, "expect": %q`, test.query, test.expect)), want, test.reason)
		if !strings.Contains(r.Detail, test.detail) {
			t.Errorf("%s: the detail is %q, want %q", test.query, r.Detail, test.detail)
		}
	}
}

// lockedTables queries a table that is locked by another session.
func lockedTables(t *testing.T, way lab.Way, c cluster) {
	other := c.login(t)
	defer other.Close(context.Background())
	if _, err := other.Exec(t.Context(), `BEGIN; LOCK TABLE orders`).ReadAll(); err != nil {
		t.Fatal(err)
	}
	waits := c.asks(t, way, `, "query": "SELECT n FROM orders", "role": "primary"`)
	for range 3 {
		lab.TimesOut(t, waits, time.Second, "postgres.timeout")
	}
	// No query is still waiting on the server.
	lab.Until(t, c.asks(t, way, `, "query": "SELECT count(*) FROM pg_stat_activity WHERE application_name = 'sonde'", "expect": "1"`), guest.Success)
}

func follows(t *testing.T, way lab.Way, first cluster) {
	second := standbyOf(t, first).ready(t, way)
	follows := second.asks(t, way, `, "role": "standby", "max_lag": "1s"`)
	lab.Until(t, follows, guest.Success)
	primary := second.asks(t, way, `, "role": "primary"`)
	lab.Expect(t, primary, guest.Failure, "postgres.role")
	lab.Expect(t, first.asks(t, way, `, "role": "standby"`), guest.Failure, "postgres.role")

	second.exec(t, `SELECT pg_wal_replay_pause()`)
	first.exec(t, `CREATE TABLE orders (n int)`)
	fails(t, follows, "postgres.lag")
	second.exec(t, `SELECT pg_wal_replay_resume()`)
	lab.Until(t, follows, guest.Success)

	first.Kill()
	fails(t, follows, "postgres.lag")
	first.Restart()
	lab.Until(t, follows, guest.Success)

	second.exec(t, `SELECT pg_promote()`)
	lab.Expect(t, follows, guest.Failure, "postgres.role")
	lab.Until(t, primary, guest.Success)
}

// fails waits for a failure with a reason.
func fails(t *testing.T, a lab.Attempt, reason string) {
	t.Helper()
	if r := lab.Until(t, a, guest.Failure); r.Reason != reason {
		t.Errorf("got %+v, want %q", r, reason)
	}
}

// notYet tests a state that a tcp probe cannot detect: the port is open, but logins are rejected.
func notYet(t *testing.T, way lab.Way, first cluster) {
	cold := standbyOf(t, first, "hot_standby=off").asks(t, way, "")
	testsync.Until(t, "the failure of a server that is starting", func() bool {
		r := cold(lab.Timeout)
		if r.Outcome != guest.Failure {
			t.Fatalf("a server that is starting: %+v", r)
		}
		return r.Reason == "postgres.starting"
	})
}

func overTLS(t *testing.T, way lab.Way, c cluster, authority string) {
	good := fmt.Sprintf(`, "query": "SELECT ssl FROM pg_stat_ssl WHERE pid = pg_backend_pid()", "expect": "t", "tls": {"ca_pem": %q}`, authority)
	lab.Expect(t, c.asks(t, way, good), guest.Success, "")
	lab.Expect(t, c.asks(t, way, `, "tls": {"verify": false}`), guest.Success, "")
	lab.Expect(t, c.asks(t, way, `, "tls": {}`), guest.Failure, "tls.untrusted")
	lab.Expect(t, c.asks(t, way, fmt.Sprintf(`, "tls": {"ca_pem": %q, "server_name": "shop.test"}`, authority)), guest.Failure, "tls.name")
}

func oddAnswers(t *testing.T, way lab.Way) {
	for name, test := range map[string]struct {
		answer, settings, reason string
	}{
		"nothing":                  {"", "", "tcp.closed"},
		"half a message":           {"R\x00\x00\x00\x08\x00", "", "tcp.closed"},
		"another protocol":         {"HTTP/1.1 400 Bad Request\r\n\r\n", "", "postgres.protocol"},
		"a message of 2 GiB":       {"R\x7f\xff\xff\xff", "", "postgres.protocol"},
		"a message without length": {"R\x00\x00\x00\x00", "", "postgres.protocol"},
		"an unknown way to log in": {"R\x00\x00\x00\x08\x00\x00\x00\x63", "", "postgres.protocol"},
		"another protocol, in TLS": {"HTTP/1.1 400 Bad Request\r\n\r\n", `, "tls": {}`, "postgres.tls"},
		"too many to log in":       {messageOf('E', "SFATAL\x00C53300\x00Mfull up\x00\x00"), "", "postgres.full"},
		"no role": {messageOf('R', "\x00\x00\x00\x00") + messageOf('Z', "I") + messageOf('C', "SET\x00") + messageOf('Z', "I"),
			`, "role": "primary"`, "postgres.protocol"},
		"an odd lag": {messageOf('R', "\x00\x00\x00\x00") + messageOf('Z', "I") + messageOf('T', "\x00\x00") +
			messageOf('D', "\x00\x02\x00\x00\x00\x01t\x00\x00\x00\x03NaN") + messageOf('C', "SELECT 1\x00") + messageOf('Z', "I"),
			`, "max_lag": "1s"`, "postgres.protocol"},
	} {
		port := lab.Serve(t, func(c net.Conn) {
			if _, err := c.Read(make([]byte, 1)); err == nil {
				_, _ = io.WriteString(c, test.answer)
				_ = c.(*net.TCPConn).CloseWrite()
				_, _ = io.Copy(io.Discard, c)
			}
		})
		r := lab.Expect(t, way.Must(t, fmt.Sprintf(`{"port": %q, "user": "probe"%s}`, port, test.settings)), guest.Failure, test.reason)
		if t.Failed() {
			t.Fatalf("%s: %+v", name, r)
		}
	}
	mute := way.Must(t, fmt.Sprintf(`{"port": %q, "user": "probe"}`, lab.Serve(t, func(c net.Conn) { _, _ = io.Copy(io.Discard, c) })))
	lab.TimesOut(t, mute, 200*time.Millisecond, "tcp.timeout")
}

func TestThePluginPassesTheConformanceKit(t *testing.T) {
	c := start(t)
	module := lab.Build(t, ".")
	c.ready(t, lab.With(lab.Load(t, module)))
	c.exec(t, `CREATE ROLE clear LOGIN PASSWORD 'geheim'`) // without SCRAM, which is slow in a module
	lab.Conforms(t, module, c.port, `{"user": "clear", "password": "geheim", "role": "primary", "query": "SELECT 1"}`)
}

// messageOf returns a server message: its kind, its length and its text.
func messageOf(kind byte, text string) string {
	return string(binary.BigEndian.AppendUint32([]byte{kind}, uint32(4+len(text)))) + text
}

func wrongSettings(t *testing.T, way lab.Way) {
	for settings, field := range map[string]string{
		`{}`:                                                    "user",
		`{"user": ""}`:                                          "user",
		`{"user": "probe", "database": ""}`:                     "database",
		`{"user": "probe", "role": "replica"}`:                  "role",
		`{"user": "probe", "max_lag": "-1s"}`:                   "max_lag",
		`{"user": "probe", "expect": "1"}`:                      "query",
		`{"user": "probe", "quer": "SELECT 1"}`:                 "quer",
		`{"user": "probe", "role": "primary", "max_lag": "1s"}`: "max_lag",
		`{"user": "probe", "tls": {"ca": "x"}}`:                 "tls.ca",
	} {
		lab.Refused(t, way, settings, field)
	}
}
