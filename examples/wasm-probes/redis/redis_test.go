package main

import (
	"bufio"
	"fmt"
	"io"
	"net"
	"os"
	"strings"
	"testing"
	"time"

	"github.com/sonde-probe/sonde/examples/wasm-probes/internal/lab"
	"github.com/sonde-probe/sonde/guest"
	"github.com/sonde-probe/sonde/tests/gatewaytest"
	"github.com/sonde-probe/sonde/tests/testsync"
)

func TestRedis(t *testing.T) {
	lab.Both(t, attempt, func(t *testing.T, way lab.Way) {
		t.Run("ARealServer", func(t *testing.T) { realServer(t, way) })
		t.Run("Logins", func(t *testing.T) { logins(t, way) })
		t.Run("TLS", func(t *testing.T) { overTLS(t, way) })
		t.Run("Replication", func(t *testing.T) { replicas(t, way) })
		t.Run("Writes", func(t *testing.T) { writes(t, way) })
		t.Run("AScriptThatDoesNotEnd", func(t *testing.T) { busy(t, way) })
		t.Run("AConnectionIsNotEnough", func(t *testing.T) { onlyAccepts(t, way) })
		t.Run("InvalidAnswers", func(t *testing.T) { oddAnswers(t, way) })
		t.Run("WrongSettingsAreNamed", func(t *testing.T) { wrongSettings(t, way) })
	})
}

// server starts Redis and returns its port.
func server(t *testing.T, args ...string) (s *lab.Server, port string) {
	port = gatewaytest.FreePort(t)
	args = append([]string{"--bind", "127.0.0.1", "--port", port, "--save", "", "--repl-ping-replica-period", "1", "--repl-diskless-sync-delay", "0"}, args...)
	return lab.Start(t, &lab.Server{Name: "redis-server", Dir: t.TempDir(), Args: args}), port
}

func realServer(t *testing.T, way lab.Way) {
	s, port := server(t)
	s.Turns(t, way.Must(t, fmt.Sprintf(`{"port": %q}`, port)))
}

func logins(t *testing.T, way lab.Way) {
	_, port := server(t, "--requirepass", "geheim", "--user", "probe", "on", ">auchgeheim", "+ping")
	good := way.Must(t, fmt.Sprintf(`{"port": %q, "password": "geheim"}`, port))
	lab.Until(t, good, guest.Success)
	for settings, reason := range map[string]string{
		`"password": "geheim", "role": "primary"`:                          "",
		`"username": "probe", "password": "auchgeheim"`:                    "",
		`"username": "probe", "password": "auchgeheim", "role": "primary"`: "redis.auth", // INFO is not permitted
		`"password": "falsch"`:                                             "redis.auth",
		`"role": "primary"`:                                                "redis.auth",
	} {
		want := guest.Failure
		if reason == "" {
			want = guest.Success
		}
		lab.Expect(t, way.Must(t, fmt.Sprintf(`{"port": %q, %s}`, port, settings)), want, reason)
	}
}

func overTLS(t *testing.T, way lab.Way) {
	cert, key, authority := lab.CertificateFiles(t, nil)
	secure := gatewaytest.FreePort(t)
	_, plain := server(t, "--tls-port", secure, "--tls-cert-file", cert, "--tls-key-file", key, "--tls-ca-cert-file", cert)
	with := func(port, tls string) lab.Attempt {
		return way.Must(t, fmt.Sprintf(`{"port": %q, "tls": {%s}}`, port, tls))
	}
	certPEM, err := os.ReadFile(cert)
	if err != nil {
		t.Fatal(err)
	}
	keyPEM, err := os.ReadFile(key)
	if err != nil {
		t.Fatal(err)
	}
	shows := fmt.Sprintf(`"ca_pem": %q, "cert_pem": %q, "key_pem": %q`, authority, certPEM, keyPEM)
	lab.Until(t, with(secure, shows), guest.Success)
	lab.Expect(t, with(secure, ""), guest.Failure, "tls.untrusted")
	for what, a := range map[string]lab.Attempt{
		"no certificate":          with(secure, fmt.Sprintf(`"ca_pem": %q`, authority)),
		"no TLS where it is":      way.Must(t, fmt.Sprintf(`{"port": %q}`, secure)),
		"TLS where there is none": with(plain, shows),
	} {
		var r guest.Result
		testsync.Longer(t, what, 300*time.Millisecond, testsync.Timeout, func(timeout time.Duration) bool {
			r = a(timeout)
			return r.Outcome != guest.Unknown // Unknown on a busy machine
		})
		if r.Outcome != guest.Failure {
			t.Errorf("%s: %+v", what, r)
		}
	}
}

func busy(t *testing.T, way lab.Way) {
	_, port := server(t, "--busy-reply-threshold", "10")
	a := way.Must(t, fmt.Sprintf(`{"port": %q}`, port))
	lab.Until(t, a, guest.Success)
	send(t, port, "EVAL", "while true do end", "0")
	if r := lab.Until(t, a, guest.Failure); r.Reason != "redis.busy" {
		t.Errorf("got %+v", r)
	}
	send(t, port, "SCRIPT", "KILL")
	lab.Until(t, a, guest.Success)
}

// send sends a command to the server and does not wait for the reply.
func send(t *testing.T, port string, command ...string) {
	t.Helper()
	c, err := net.Dial("tcp", "127.0.0.1:"+port)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { c.Close() })
	if _, err := c.Write(appendCommand(nil, command...)); err != nil {
		t.Fatal(err)
	}
}

func onlyAccepts(t *testing.T, way lab.Way) {
	port := lab.Serve(t, func(c net.Conn) { _, _ = io.Copy(io.Discard, c) })
	a := way.Must(t, fmt.Sprintf(`{"port": %q}`, port))
	lab.TimesOut(t, a, 200*time.Millisecond, "tcp.timeout")
}

func replicas(t *testing.T, way lab.Way) {
	first, port := server(t)
	ask := func(port, settings string) lab.Attempt {
		return way.Must(t, fmt.Sprintf(`{"port": %q, %s}`, port, settings))
	}
	lab.Until(t, ask(port, `"role": "primary"`), guest.Success)
	lab.Expect(t, ask(port, `"role": "replica"`), guest.Failure, "redis.role")
	lab.Expect(t, ask(port, `"min_replicas": 1`), guest.Failure, "redis.replicas")

	_, second := server(t, "--replicaof", "127.0.0.1 "+port)
	lab.Until(t, ask(second, `"role": "replica", "max_lag": "10s"`), guest.Success)
	lab.Until(t, ask(port, `"min_replicas": 1, "max_lag": "10s"`), guest.Success)
	lab.Expect(t, ask(second, `"min_replicas": 1`), guest.Failure, "redis.role")

	first.Kill()
	lost := ask(second, `"role": "replica"`)
	if r := lab.Until(t, lost, guest.Failure); r.Reason != "redis.link" {
		t.Errorf("without a primary: %+v", r)
	}
	first.Restart()
	lab.Until(t, lost, guest.Success)
}

func writes(t *testing.T, way lab.Way) {
	_, port := server(t, "--min-replicas-max-lag", "2")
	good := way.Must(t, fmt.Sprintf(`{"port": %q, "write": "sonde:probe", "role": "primary"}`, port))
	lab.Until(t, good, guest.Success)
	reads := way.Must(t, fmt.Sprintf(`{"port": %q}`, port))
	for name, c := range map[string]struct{ on, off, reason string }{
		"a demoted primary":  {"REPLICAOF 127.0.0.1 1", "REPLICAOF NO ONE", "redis.role"},
		"replicas are gone":  {"CONFIG SET min-replicas-to-write 1", "CONFIG SET min-replicas-to-write 0", "redis.replicas"},
		"its memory is full": {"CONFIG SET maxmemory 1000", "CONFIG SET maxmemory 0", "redis.memory"},
	} {
		send(t, port, strings.Fields(c.on)...)
		write := way.Must(t, fmt.Sprintf(`{"port": %q, "write": "sonde:probe"}`, port))
		if r := lab.Until(t, write, guest.Failure); r.Reason != c.reason {
			t.Errorf("%s: %+v, want %s", name, r, c.reason)
		}
		lab.Expect(t, reads, guest.Success, "")
		send(t, port, strings.Fields(c.off)...)
		lab.Until(t, write, guest.Success)
	}
}

func oddAnswers(t *testing.T, way lab.Way) {
	for answer, reason := range map[string]string{
		"":                         "tcp.closed",
		"+PONG":                    "tcp.closed",
		"+PANG\r\n":                "redis.protocol",
		"HTTP/1.1 400 Bad\r\n\r\n": "redis.protocol",
		"\r\n":                     "redis.protocol",
		"-LOADING Redis is loading the dataset in memory\r\n": "redis.loading",
		"-BUSY Redis is busy running a script\r\n":            "redis.busy",
		"-ERR unknown\r\n": "redis.error",
		"-ERR AUTH <password> called without any password\r\n": "redis.auth",
		"+" + strings.Repeat("x", maxLine):                     "redis.protocol",
		"+PONG\r\n$99999999999\r\n":                            "redis.protocol",
		"+PONG\r\n$-1\r\n":                                     "redis.protocol",
		"+PONG\r\n$65537\r\n":                                  "redis.protocol",
		"+PONG\r\n$11\r\nrole:master":                          "tcp.closed",
		"+PONG\r\n$9\r\nrole:king\r\n":                         "redis.protocol",
		"+PONG\r\n$50\r\nrole:slave\r\nmaster_sync_in_progress:1\r\n1234567890\r\n\r\n": "redis.sync",
	} {
		port := lab.Serve(t, func(c net.Conn) {
			request := make([]byte, len("*1\r\n$4\r\nPING\r\n*2\r\n$4\r\nINFO\r\n$11\r\nreplication\r\n"))
			if _, err := io.ReadFull(c, request); err == nil {
				_, _ = io.WriteString(c, answer)
			}
		})
		a := way.Must(t, fmt.Sprintf(`{"port": %q, "max_lag": "1s"}`, port))
		if r := lab.Expect(t, a, guest.Failure, reason); r.Reason != reason {
			t.Errorf("to %.60q", answer)
		}
	}
}

func wrongSettings(t *testing.T, way lab.Way) {
	for settings, field := range map[string]string{
		`{"role": "master"}`:                     "role",
		`{"max_lag": "100ms"}`:                   "max_lag",
		`{"max_lag": "-1s"}`:                     "max_lag",
		`{"min_replicas": -1}`:                   "min_replicas",
		`{"min_replicas": 1, "role": "replica"}`: "min_replicas",
		`{"write": "a", "role": "replica"}`:      "write",
		`{"username": "probe"}`:                  "password",
		`{"pasword": "x"}`:                       "pasword",
	} {
		lab.Refused(t, way, settings, field)
	}
}

func TestThePluginPassesTheConformanceKit(t *testing.T) {
	_, port := server(t)
	module := lab.Build(t, ".")
	settings := fmt.Sprintf(`{"port": %q, "role": "primary"}`, port)
	lab.Until(t, lab.With(lab.Load(t, module)).Must(t, settings), guest.Success)
	lab.Conforms(t, module, port, settings)
}

func TestReplicationIsRead(t *testing.T) {
	const text = "# Replication\r\nrole:master\r\nconnected_slaves:3\r\n" +
		"slave0:ip=10.0.0.8,port=6379,state=online,offset=42,lag=1\r\n" +
		"slave1:ip=10.0.0.9,port=6379,state=send_bulk,offset=0,lag=0\r\n" +
		"slave2:ip=10.0.0.10,port=6379,state=online,offset=42,lag=30\r\n" +
		"slave_expires_tracked_keys:0\r\n"
	r := parseReplication(text)
	if len(r.replicas) != 2 || r.role != primary {
		t.Fatalf("got %+v", r)
	}
	for _, test := range []struct {
		settings settings
		want     guest.Outcome
	}{
		{settings{MinReplicas: 2}, guest.Success},
		{settings{MinReplicas: 3}, guest.Failure},
		{settings{MinReplicas: 1, MaxLag: 1e10}, guest.Success},
		{settings{MinReplicas: 2, MaxLag: 1e10}, guest.Failure},
	} {
		if got := r.judge(&test.settings); got.Outcome != test.want {
			t.Errorf("%+v: %+v", test.settings, got)
		}
	}
	late := parseReplication("role:slave\r\nmaster_link_status:up\r\nmaster_last_io_seconds_ago:11\r\n")
	if got := late.judge(&settings{MaxLag: 1e10}); got.Reason != "redis.lag" {
		t.Errorf("a late replica: %+v", got)
	}
}

// FuzzReplies verifies that parsing ends, whatever a server sends.
func FuzzReplies(f *testing.F) {
	f.Add("+PONG\r\n")
	f.Add("-LOADING Redis is loading the dataset in memory\r\n")
	f.Add("$92\r\nrole:master\r\nconnected_slaves:1\r\nslave0:ip=10.0.0.8,port=6379,state=online,offset=42,lag=1\r\n\r\n")
	f.Add("$77\r\nrole:slave\r\nmaster_link_status:up\r\nmaster_last_io_seconds_ago:1\r\n\r\n")
	f.Fuzz(func(t *testing.T, text string) {
		in := bufio.NewReaderSize(strings.NewReader(text), maxLine)
		for {
			said, err := readReply(in)
			if err != nil {
				r := guest.FailWith("redis.protocol", err)
				if r.Outcome != guest.Failure || !strings.HasPrefix(r.Reason, "redis.") && r.Reason != "tcp.closed" {
					t.Errorf("%q is %+v", text, r)
				}
				return
			}
			if len(said) > maxBulk {
				t.Errorf("%d bytes were read at once", len(said))
			}
			if r := parseReplication(said).judge(&settings{MaxLag: 1e10}); r.Outcome == guest.Unknown {
				t.Errorf("%q is judged as %+v", said, r)
			}
		}
	})
}
