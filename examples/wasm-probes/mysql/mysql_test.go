package main

import (
	"fmt"
	"io"
	"net"
	"strings"
	"sync/atomic"
	"testing"
	"time"

	"github.com/sonde-probe/sonde/examples/wasm-probes/internal/lab"
	"github.com/sonde-probe/sonde/guest"
)

func TestMySQL(t *testing.T) {
	lab.Both(t, attempt, func(t *testing.T, way lab.Way) {
		t.Run("AServer", func(t *testing.T) { oneServer(t, way) })
		t.Run("AReplica", func(t *testing.T) { replicas(t, way) })
		t.Run("InvalidAnswers", func(t *testing.T) { oddAnswers(t, way) })
		t.Run("RandomBytesThatEndInZero", func(t *testing.T) { zeroNonce(t, way) })
		t.Run("WrongSettingsAreNamed", func(t *testing.T) { wrongSettings(t, way) })
	})
}

func oneServer(t *testing.T, way lab.Way) {
	cert, key, authority := lab.CertificateFiles(t, lab.Account(t, "mysql"))
	s := start(t, "--ssl-cert="+cert, "--ssl-key="+key, "--plugin-load-add=auth_ed25519", "--max-connect-errors=1000000").ready(t, way)
	t.Run("Logins", func(t *testing.T) { logins(t, way, s) })
	t.Run("Queries", func(t *testing.T) { queries(t, way, s) })
	t.Run("LockedTables", func(t *testing.T) { lockedTables(t, way, s) })
	t.Run("Roles", func(t *testing.T) { roles(t, way, s) })
	t.Run("TLS", func(t *testing.T) { overTLS(t, way, s, authority) })
	t.Run("ItsFates", func(t *testing.T) { s.Turns(t, s.asks(t, way, "")) })
}

func logins(t *testing.T, way lab.Way, s server) {
	s.exec(t,
		`CREATE USER probe IDENTIFIED BY 'auchgeheim'`,
		`CREATE USER modern IDENTIFIED VIA ed25519 USING PASSWORD('auchgeheim')`,
		`CREATE USER locked IDENTIFIED BY 'auchgeheim' ACCOUNT LOCK`,
		`CREATE USER old IDENTIFIED BY 'auchgeheim' PASSWORD EXPIRE`,
		`CREATE USER elsewhere@10.0.0.1 IDENTIFIED BY 'auchgeheim'`,
		`CREATE USER busy IDENTIFIED BY 'auchgeheim' WITH MAX_QUERIES_PER_HOUR 1`,
		`CREATE DATABASE shop`)
	for settings, reason := range map[string]string{
		`"user": "probe", "password": "auchgeheim"`:                     "",
		`"user": "modern", "password": "auchgeheim"`:                    "",
		`"user": "modern", "password": "falsch"`:                        "mysql.auth",
		`"user": "probe", "password": "falsch"`:                         "mysql.auth",
		`"user": "probe"`:                                               "mysql.auth",
		`"user": "nobody", "password": "auchgeheim"`:                    "mysql.auth",
		`"user": "elsewhere", "password": "auchgeheim"`:                 "mysql.auth",
		`"user": "locked", "password": "auchgeheim"`:                    "mysql.auth",
		`"user": "old", "password": "auchgeheim"`:                       "mysql.auth",
		`"user": "busy", "password": "auchgeheim"`:                      "mysql.full",
		`"user": "root", "database": "none"`:                            "mysql.database",
		`"user": "probe", "password": "auchgeheim", "database": "shop"`: "mysql.denied",
		`"user": "probe", "password": "auchgeheim", "role": "replica"`:  "mysql.denied",
		`"user": "probe", "password": "auchgeheim", "role": "primary"`:  "", // needs no privileges
	} {
		want := guest.Failure
		if reason == "" {
			want = guest.Success
		}
		lab.Expect(t, way.Must(t, fmt.Sprintf(`{"port": %q, %s}`, s.port, settings)), want, reason)
	}
}

func queries(t *testing.T, way lab.Way, s server) {
	s.exec(t, `CREATE DATABASE orders`, `CREATE TABLE orders.orders (n int, text text)`,
		`INSERT INTO orders.orders SELECT seq, repeat('x', 1000) FROM orders.seq_1_to_10000`)
	for _, test := range []struct {
		query, expect, reason, detail string
	}{
		{"SELECT 1", "", "", `"1"`},
		{"SELECT 1", "1", "", `"1"`},
		{"SELECT 1", "2", "mysql.expect", `"1", not "2"`},
		{"SELECT NULL", "", "", `""`},
		{"SELECT true, 'x'", "1", "", `"1"`},
		{"SELECT 1.50", "1.50", "", `"1.50"`},
		{"SELECT 1e6, 2", "1000000", "", `"1000000"`},
		{"SELECT cast(1.5 AS float)", "1.5", "", `"1.5"`},
		{"SELECT date '2026-11-21'", "2026-11-21", "", ""},
		{"SELECT count(*) FROM orders", "10000", "", `"10000"`},
		{"SELECT * FROM orders", "1", "", `"1"`}, // 10 MB; only one row is read
		{"SHOW STATUS LIKE 'Threads_connected'", "Threads_connected", "", ""},
		{"SELECT n FROM orders WHERE n < 0", "", "mysql.expect", "no row"},
		{"DO 1", "", "mysql.expect", "no row"},
		{"SELECT n FROM order", "", "mysql.error", "error 1064"},
		{"SELECT n FROM ordres", "", "mysql.error", "'orders.ordres' doesn't exist"},
		{"SELECT 1; SELECT 2", "", "mysql.error", "error 1064"},
		{"SELECT repeat('x', 300000)", "", "mysql.protocol", "262144"},
		{"SELECT repeat('x', 200000)", "", "", "xxx"},
		{"KILL QUERY CONNECTION_ID()", "", "mysql.timeout", "interrupted"},
		{"KILL CONNECTION_ID()", "", "mysql.error", "killed"},
		{"SELECT sleep(1000)", "1", "mysql.timeout", "max_statement_time"},
	} {
		want := guest.Failure
		if test.reason == "" {
			want = guest.Success
		}
		a := s.asks(t, way, fmt.Sprintf(`, "database": "orders", "query": %q, "expect": %q`, test.query, test.expect))
		var r guest.Result
		if strings.Contains(test.query, "sleep") {
			r = lab.TimesOut(t, a, 2*time.Second, test.reason)
		} else {
			r = a(lab.Timeout)
		}
		if r.Outcome != want || r.Reason != test.reason || !strings.Contains(r.Detail, test.detail) {
			t.Errorf("%s: %+v, want %v, %q and %q", test.query, r, want, test.reason, test.detail)
		}
	}
}

// lockedTables queries a table that is locked by another session.
func lockedTables(t *testing.T, way lab.Way, s server) {
	other, err := s.open(t).Conn(t.Context())
	if err != nil {
		t.Fatal(err)
	}
	defer other.Close()
	if _, err := other.ExecContext(t.Context(), `LOCK TABLE orders.orders WRITE`); err != nil {
		t.Fatal(err)
	}
	waits := s.asks(t, way, `, "query": "SELECT n FROM orders.orders"`)
	for range 3 {
		lab.TimesOut(t, waits, time.Second, "mysql.timeout")
	}
	// No query is still waiting on the server.
	lab.Until(t, s.asks(t, way, `, "query": "SELECT count(*) FROM information_schema.processlist WHERE info LIKE '%n FROM orders.orders'", "expect": "0"`), guest.Success)
}

func roles(t *testing.T, way lab.Way, s server) {
	primary := s.asks(t, way, `, "role": "primary"`)
	lab.Expect(t, primary, guest.Success, "")
	lab.Expect(t, s.asks(t, way, `, "role": "replica"`), guest.Failure, "mysql.role")
	s.exec(t, `SET GLOBAL read_only = 1`)
	lab.Expect(t, primary, guest.Failure, "mysql.role")
	s.exec(t, `SET GLOBAL read_only = 0`)
	lab.Expect(t, primary, guest.Success, "")
}

func overTLS(t *testing.T, way lab.Way, s server, authority string) {
	good := fmt.Sprintf(`, "query": "SHOW STATUS WHERE variable_name = 'Ssl_version' AND value LIKE 'TLS%%'", "tls": {"ca_pem": %q}`, authority)
	lab.Expect(t, s.asks(t, way, good), guest.Success, "")
	lab.Expect(t, s.asks(t, way, `, "tls": {"verify": false}`), guest.Success, "")
	_, stranger := lab.Certificate(t)
	lab.Expect(t, s.asks(t, way, fmt.Sprintf(`, "tls": {"ca_pem": %q}`, stranger)), guest.Failure, "tls.untrusted")
	lab.Expect(t, s.asks(t, way, fmt.Sprintf(`, "tls": {"ca_pem": %q, "server_name": "shop.test"}`, authority)), guest.Failure, "tls.name")
}

func replicas(t *testing.T, way lab.Way) {
	first := start(t, "--server-id=1", "--log-bin=log").ready(t, way)
	t.Run("NoTLS", func(t *testing.T) {
		lab.Expect(t, first.asks(t, way, `, "tls": {"verify": false}`), guest.Failure, "mysql.tls")
	})
	first.exec(t, `CREATE USER follower IDENTIFIED BY 'geheim'`, `GRANT REPLICATION SLAVE ON *.* TO follower`)
	second := start(t, "--server-id=2", "--read-only").ready(t, way)
	second.exec(t, fmt.Sprintf(`CHANGE MASTER TO master_host = '127.0.0.1', master_port = %s, master_user = 'follower',
		master_password = 'geheim', master_connect_retry = 1, master_use_gtid = slave_pos`, first.port),
		`START SLAVE`, `CREATE USER monitor`, `GRANT REPLICA MONITOR ON *.* TO monitor`)
	follows := way.Must(t, fmt.Sprintf(`{"port": %q, "user": "monitor", "role": "replica", "max_lag": "1s"}`, second.port))
	lab.Until(t, follows, guest.Success)
	lab.Expect(t, second.asks(t, way, `, "role": "primary"`), guest.Failure, "mysql.role")

	// A replica that waits for a locked table lags.
	first.exec(t, `CREATE DATABASE shop`, `CREATE TABLE shop.orders (n int)`)
	lab.Until(t, second.asks(t, way, `, "query": "SELECT 1 FROM information_schema.tables WHERE table_schema = 'shop'"`), guest.Success)
	other, err := second.open(t).Conn(t.Context())
	if err != nil {
		t.Fatal(err)
	}
	defer other.Close()
	if _, err := other.ExecContext(t.Context(), `LOCK TABLE shop.orders READ`); err != nil {
		t.Fatal(err)
	}
	first.exec(t, `INSERT INTO shop.orders VALUES (1)`)
	fails(t, follows, "mysql.lag")
	if _, err := other.ExecContext(t.Context(), `UNLOCK TABLES`); err != nil {
		t.Fatal(err)
	}
	lab.Until(t, follows, guest.Success)

	first.Kill()
	fails(t, follows, "mysql.link")
	first.Restart()
	lab.Until(t, follows, guest.Success)
	second.exec(t, `STOP SLAVE SQL_THREAD`)
	lab.Expect(t, follows, guest.Failure, "mysql.applier")
}

// fails waits for a failure with a reason.
func fails(t *testing.T, a lab.Attempt, reason string) {
	t.Helper()
	if r := lab.Until(t, a, guest.Failure); r.Reason != reason {
		t.Errorf("got %+v, want %q", r, reason)
	}
}

func oddAnswers(t *testing.T, way lab.Way) {
	for answer, reason := range map[string]string{
		"":                                     "tcp.closed",
		"\x10\x00\x00\x00\x0a":                 "tcp.closed",
		"HTTP/1.1 400 Bad Request\r\n":         "mysql.protocol",
		"SSH-2.0-OpenSSH_9.2p1\r\n":            "mysql.protocol",
		"\xff\xff\xff\x00":                     "mysql.protocol", // 16 MiB
		"\x00\x00\x00\x00":                     "mysql.protocol",
		"\x04\x00\x00\x01abcd":                 "mysql.protocol", // the second packet
		"\x04\x00\x00\x00abcd":                 "mysql.protocol",
		"\x0b\x00\x00\x00\xff\x10\x04too many": "mysql.full",
	} {
		port := lab.Serve(t, func(c net.Conn) {
			_, _ = io.WriteString(c, answer)
			if !strings.HasSuffix(answer, "\r\n") { // a real server waits for more data
				_ = c.(*net.TCPConn).CloseWrite()
			}
			_, _ = io.Copy(io.Discard, c)
		})
		if r := lab.Expect(t, way.Must(t, fmt.Sprintf(`{"port": %q, "user": "probe"}`, port)), guest.Failure, reason); r.Reason != reason {
			t.Errorf("to %q", answer)
		}
	}
	mute := way.Must(t, fmt.Sprintf(`{"port": %q, "user": "probe"}`, lab.Serve(t, func(c net.Conn) { _, _ = io.Copy(io.Discard, c) })))
	lab.TimesOut(t, mute, 200*time.Millisecond, "tcp.timeout")
}

// zeroNonce logs in to a server whose first random bytes for ed25519 end in 0. The retry must reach
// the server, which rejects the second login.
func zeroNonce(t *testing.T, way lab.Way) {
	packet := func(number byte, text string) string {
		return string([]byte{byte(len(text)), 0, 0, number}) + text
	}
	greeting := packet(0, "\x0a5.5.5-10.11.0-MariaDB\x00\x01\x00\x00\x00abcdefgh\x00"+
		"\x08\x82\x2d\x02\x00\x08\x00\x15"+strings.Repeat("\x00", 10)+"abcdefghijkl\x00mysql_native_password\x00")
	another := packet(2, "\xfeclient_ed25519\x00"+strings.Repeat("n", 31)+"\x00")
	var logins atomic.Int32
	port := lab.Serve(t, func(c net.Conn) {
		if logins.Add(1) > 1 {
			_, _ = io.WriteString(c, packet(0, "\xff\x15\x04denied"))
			return
		}
		_, _ = io.WriteString(c, greeting)
		_, _ = c.Read(make([]byte, 1000)) // the login
		_, _ = io.WriteString(c, another)
		_, _ = io.Copy(io.Discard, c)
	})
	r := way.Must(t, fmt.Sprintf(`{"port": %q, "user": "probe", "password": "geheim"}`, port))(lab.Timeout)
	if r.Outcome != guest.Failure || r.Reason != "mysql.auth" || logins.Load() != 2 {
		t.Errorf("got %+v after %d logins", r, logins.Load())
	}
}

func TestThePluginPassesTheConformanceKit(t *testing.T) {
	s := start(t)
	module := lab.Build(t, ".")
	s.ready(t, lab.With(lab.Load(t, module)))
	lab.Conforms(t, module, s.port, `{"user": "root", "role": "primary"}`)
}

func wrongSettings(t *testing.T, way lab.Way) {
	for settings, field := range map[string]string{
		`{}`:                                   "user",
		`{"user": ""}`:                         "user",
		`{"user": "probe", "query": ""}`:       "query",
		`{"user": "probe", "role": "standby"}`: "role",
		`{"user": "probe", "max_lag": "1s"}`:   "role",
		`{"user": "probe", "tls": {}}`:         "tls.ca_pem",
		`{"user": "probe", "pasword": "x"}`:    "pasword",
		`{"user": "probe", "role": "replica", "max_lag": "100ms"}`:        "max_lag",
		`{"user": "probe", "tls": {"verify": false, "cert_pem": "none"}}`: "tls.cert_pem",
		`{"user": "probe", "tls": {"verfy": false}}`:                      "tls.verfy",
	} {
		lab.Refused(t, way, settings, field)
	}
}
