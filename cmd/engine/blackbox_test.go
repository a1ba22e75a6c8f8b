package main

import (
	"crypto/tls"
	"fmt"
	"io"
	"log"
	"math"
	"net"
	"net/http"
	"net/http/httptest"
	"net/url"
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"strconv"
	"strings"
	"testing"
	"time"

	"github.com/sonde-probe/sonde/tests/dialtest"
	"github.com/sonde-probe/sonde/tests/gatewaytest"
	"github.com/sonde-probe/sonde/tests/program"
	"github.com/sonde-probe/sonde/tests/testsync"
	"github.com/sonde-probe/sonde/tests/tier"
)

const exporter = "prometheus-blackbox-exporter"

// blackboxModules is a configuration of blackbox_exporter. CA is replaced by the name of a file.
const blackboxModules = `
modules:
  http_2xx: {prober: http, http: {preferred_ip_protocol: ip4}}
  http_stays: {prober: http, http: {preferred_ip_protocol: ip4, follow_redirects: false}}
  http_post: {prober: http, http: {method: POST, headers: {Accept-Language: please}, body: hello}}
  http_503: {prober: http, http: {valid_status_codes: [503]}}
  http_regex: {prober: http, http: {fail_if_body_not_matches_regexp: ["wel+come"]}}
  http_mismatch: {prober: http, http: {fail_if_body_not_matches_regexp: ["farewell"]}}
  http_ca: {prober: http, http: {tls_config: {ca_file: CA}}}
  http_insecure: {prober: http, http: {tls_config: {insecure_skip_verify: true}}}
  tcp_connect: {prober: tcp, tcp: {preferred_ip_protocol: ip4}}
  tcp_banner: {prober: tcp, tcp: {query_response: [{expect: "^SSH-2.0-"}]}}
  tcp_ask: {prober: tcp, tcp: {query_response: [{send: "PING"}, {expect: "^PONG"}]}}
  tcp_ca: {prober: tcp, tcp: {tls: true, tls_config: {ca_file: CA}}}
  tcp_insecure: {prober: tcp, tcp: {tls: true, tls_config: {insecure_skip_verify: true}}}
  icmp: {prober: icmp, icmp: {preferred_ip_protocol: ip4}}
  dns_a: {prober: dns, dns: {query_name: www.example.com, query_type: A}}
  dns_soa: {prober: dns, dns: {query_name: www.example.com, query_type: SOA}}
  dns_missing: {prober: dns, dns: {query_name: missing.example.com, query_type: A}}
  grpc_plain: {prober: grpc, grpc: {preferred_ip_protocol: ip4}}
  grpc_unknown: {prober: grpc, grpc: {preferred_ip_protocol: ip4, service: nobody}}
`

// TestProbeAnswersAsBlackboxExporterDoes imports a configuration of blackbox_exporter, and sends the same requests to both. The
// names, labels and descriptions of the metrics must be the same, and so must all values except durations.
func TestProbeAnswersAsBlackboxExporterDoes(t *testing.T) {
	tier.Needs(t, exporter)
	authority := dialtest.NewAuthority(t)
	own := authority.Sign(t, time.Hour, "127.0.0.1", "localhost")
	ca := authority.File
	file := filepath.Join(t.TempDir(), "blackbox.yml")
	if err := os.WriteFile(file, []byte(strings.ReplaceAll(blackboxModules, "CA", ca)), 0o644); err != nil {
		t.Fatal(err)
	}
	theirs := startExporter(t, file)
	ours := startImported(t, file)

	plain := httptest.NewServer(http.HandlerFunc(blackboxed))
	t.Cleanup(plain.Close)
	secure := httptest.NewUnstartedServer(http.HandlerFunc(blackboxed))
	secure.EnableHTTP2, secure.TLS = true, &tls.Config{Certificates: []tls.Certificate{own}}
	secure.Config.ErrorLog = log.New(io.Discard, "", 0)
	secure.StartTLS()
	t.Cleanup(secure.Close)
	web, closed := plain.Listener.Addr().String(), gatewaytest.FreeAddress(t)
	_, webPort, _ := net.SplitHostPort(web)
	talk := talker(t)
	dns := dnsServer(t)
	health := startDemo(t)
	for _, c := range []struct{ module, target string }{
		{"http_2xx", plain.URL + "/"},
		{"http_2xx", web},
		{"http_2xx", "localhost:" + webPort + "/deep?x=1"},
		{"http_2xx", plain.URL + "/from"},
		{"http_stays", plain.URL + "/from"},
		{"http_2xx", plain.URL + "/503"},
		{"http_503", plain.URL + "/503"},
		{"http_2xx", plain.URL + "/chunked"},
		{"http_2xx", plain.URL + "/large"},
		{"http_2xx", "http://" + closed},
		{"http_post", plain.URL + "/echo"},
		{"http_regex", plain.URL + "/"},
		{"http_mismatch", plain.URL + "/"},
		{"http_mismatch", plain.URL + "/503"},
		{"http_ca", secure.URL + "/"},
		{"http_ca", secure.URL + "/from"},
		{"http_ca", plain.URL + "/"},
		{"http_insecure", secure.URL + "/503"},
		{"http_2xx", secure.URL + "/"}, // untrusted certificate
		{"tcp_connect", web},
		{"tcp_connect", closed},
		{"tcp_banner", talk},
		{"tcp_ask", talk},
		{"tcp_ca", secure.Listener.Addr().String()},
		{"tcp_insecure", secure.Listener.Addr().String()},
		{"tcp_insecure", talk}, // does not speak TLS
		{"icmp", "127.0.0.1"},
		{"icmp", "localhost"},
		{"dns_a", dns},
		{"dns_soa", dns},
		{"dns_missing", dns},
		{"dns_a", closed},
		{"grpc_plain", health},
		{"grpc_unknown", health},
		{"grpc_plain", closed},
	} {
		t.Run(c.module+" "+c.target, func(t *testing.T) {
			want, got := scrape(t, theirs, c.module, c.target), scrape(t, ours, c.module, c.target)
			for _, name := range []string{"probe_ssl_earliest_cert_expiry", "probe_ssl_last_chain_expiry_timestamp_seconds"} {
				if want[name].series[name] <= 0 { // unknown time; Sonde omits it, since it would make alerts fire
					delete(want, name)
				}
			}
			compareMetrics(t, want, got)
		})
	}
}

// blackboxed handles the requests of both probers.
func blackboxed(w http.ResponseWriter, r *http.Request) {
	w.Header().Set("Last-Modified", "Mon, 02 Jan 2006 15:04:05 GMT")
	switch r.URL.Path {
	case "/from":
		w.Header().Set("Location", "/")
		w.WriteHeader(http.StatusFound)
	case "/503":
		w.WriteHeader(http.StatusServiceUnavailable)
		fmt.Fprint(w, "busy")
	case "/chunked":
		fmt.Fprint(w, "wel")
		w.(http.Flusher).Flush()
		fmt.Fprint(w, "come")
	case "/large":
		w.Header().Set("Content-Length", "300000")
		fmt.Fprint(w, strings.Repeat("x", 300000))
	case "/echo":
		body, _ := io.ReadAll(r.Body)
		if r.Method != http.MethodPost || r.Header.Get("Accept-Language") != "please" || string(body) != "hello" {
			w.WriteHeader(http.StatusBadRequest)
		}
	case "/", "/deep":
		fmt.Fprint(w, "welcome")
	}
}

// startExporter starts blackbox_exporter, and returns its address.
func startExporter(t *testing.T, file string) (address string) {
	t.Helper()
	address = gatewaytest.FreeAddress(t)
	ready := func() bool {
		answer, err := http.Get("http://" + address + "/-/healthy")
		if err == nil {
			answer.Body.Close()
		}
		return err == nil && answer.StatusCode == http.StatusOK
	}
	gatewaytest.Start(t, ready, exporter, "--config.file="+file, "--web.listen-address="+address)
	return address
}

// startImported starts an engine with the imported form of a configuration, and returns its address.
func startImported(t *testing.T, file string) (address string) {
	t.Helper()
	c := exec.Command("sonde", "import", "--allow", "127.0.0.1", "--allow", "localhost", "--dns-plugin", program.Plugin(t, "dns"), file)
	c.Env = environ()
	config, err := c.Output()
	if err != nil {
		t.Fatalf("sonde import: %v", err)
	}
	e := startEngine(t, string(config), nil)
	testsync.Until(t, "the plugins to be compiled", func() bool {
		return !strings.Contains(e.get("/probe?module=dns_a&target=127.0.0.1:1")+e.get("/probe?module=grpc_plain&target=127.0.0.1:1"), "could not be made")
	})
	return e.address
}

// startDemo starts the demo service, which serves grpc.health.v1, and returns its address once it
// is healthy.
func startDemo(t *testing.T) (address string) {
	t.Helper()
	address = gatewaytest.FreeAddress(t)
	ready := func() bool {
		text, err := get(http.MethodGet, "http://"+address+"/ready")
		return err == nil && strings.HasPrefix(text, "200")
	}
	gatewaytest.Start(t, ready, program.Build(t, program.Demo), "-listen", address, "-slow-start", "0s")
	return address
}

// talker starts a server that sends a banner, responds to one line with PONG, and closes the connection. It returns its
// address.
func talker(t *testing.T) (address string) {
	t.Helper()
	l, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { l.Close() })
	go func() {
		for {
			conn, err := l.Accept()
			if err != nil {
				return
			}
			go func() {
				defer conn.Close()
				fmt.Fprint(conn, "SSH-2.0-talker\r\n")
				b := make([]byte, 64)
				if n, err := conn.Read(b); err == nil && strings.HasPrefix(string(b[:n]), "PING\n") {
					fmt.Fprint(conn, "PONG\r\n")
				}
			}()
		}
	}()
	return l.Addr().String()
}

// dnsServer starts a server that responds to queries for www.example.com with one record, and to others with NXDOMAIN.
func dnsServer(t *testing.T) (address string) {
	t.Helper()
	conn, err := net.ListenPacket("udp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { conn.Close() })
	go func() {
		b := make([]byte, 512)
		for {
			n, from, err := conn.ReadFrom(b)
			if err != nil {
				return
			}
			_, _ = conn.WriteTo(dnsReply(b[:n]), from)
		}
	}()
	return conn.LocalAddr().String()
}

// dnsReply returns the response to a query (RFC 1035, section 4).
func dnsReply(query []byte) []byte {
	const header, soa = 12, 6
	m := slices.Clone(query)
	m[2] |= 0x80 // a response
	m[8], m[9], m[10], m[11] = 0, 0, 0, 0
	if !strings.Contains(string(query), "\x03www") {
		m[3] |= 3 // NXDOMAIN
		return m
	}
	m[7] = 1
	kind := m[len(query)-3]
	m = append(m, 0xc0, header, 0, kind, 0, 1, 0, 0, 0, 60)
	if kind == soa { // two names, then serial, refresh, retry, expire and minimum
		m = append(m, 0, 24, 0xc0, header, 0xc0, header, 0, 0, 0, 7)
		return append(m, make([]byte, 16)...)
	}
	return append(m, 0, 4, 192, 0, 2, 7)
}

// metric is a metric in a scrape: its description and type, and the value of each series.
type metric struct {
	head   string
	series map[string]float64
}

// scrape requests an attempt, and returns its metrics by name.
func scrape(t *testing.T, address, module, target string) map[string]metric {
	t.Helper()
	text, err := get(http.MethodGet, "http://"+address+"/probe?"+url.Values{"module": {module}, "target": {target}}.Encode())
	if err != nil || !strings.HasPrefix(text, "200") {
		t.Fatalf("%s at %s: %v %s", module, address, err, text)
	}
	all := map[string]metric{}
	for line := range strings.Lines(text) {
		line = strings.TrimSpace(line)
		words := strings.Fields(line)
		switch {
		case len(words) > 2 && words[0] == "#":
			m := all[words[2]]
			m.head += line + "\n"
			all[words[2]] = m
		case strings.HasPrefix(line, "probe_"):
			i := strings.LastIndexByte(line, ' ')
			name, _, _ := strings.Cut(line[:i], "{")
			v, err := strconv.ParseFloat(line[i+1:], 64)
			if err != nil {
				t.Fatalf("the line %q: %v", line, err)
			}
			m := all[name]
			if m.series == nil {
				m.series = map[string]float64{}
			}
			m.series[line[:i]] = v
			all[name] = m
		}
	}
	return all
}

// compareMetrics compares the names, descriptions, labels and values of got with those of want. For durations it checks only
// that they are plausible.
func compareMetrics(t *testing.T, want, got map[string]metric) {
	t.Helper()
	for name, w := range want {
		g, ok := got[name]
		if !ok || g.head != w.head {
			t.Errorf("%s is %q, want %q", name, g.head, w.head)
		}
		for series, value := range w.series {
			v, ok := g.series[series]
			isDuration := strings.Contains(name, "duration") || strings.Contains(name, "lookup")
			switch {
			case !ok:
				t.Errorf("the series %s is missing", series)
			case isDuration && (v < 0 || v > testsync.Timeout.Seconds() || math.IsNaN(v)), !isDuration && v != value:
				t.Errorf("%s is %v, want %v", series, v, value)
			}
		}
		for series := range g.series {
			if _, ok := w.series[series]; !ok {
				t.Errorf("there is the series %s, which blackbox_exporter does not have", series)
			}
		}
	}
	for name := range got {
		if _, ok := want[name]; !ok {
			t.Errorf("there is the metric %s, which blackbox_exporter does not have", name)
		}
	}
}
