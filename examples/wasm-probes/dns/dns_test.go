package main

import (
	"bytes"
	"encoding/binary"
	"encoding/json"
	"io"
	"net"
	"os"
	"strings"
	"sync/atomic"
	"testing"
	"time"

	"github.com/miekg/dns"
	"golang.org/x/net/dns/dnsmessage"

	"github.com/sonde-probe/sonde/examples/wasm-probes/internal/lab"
	"github.com/sonde-probe/sonde/guest"
	"github.com/sonde-probe/sonde/tests/gatewaytest"
	"github.com/sonde-probe/sonde/tests/testsync"
	"github.com/sonde-probe/sonde/tests/tier"
)

type settingsOf = map[string]any

// with returns settings as JSON.
func with(port, name string, more settingsOf) string {
	all := settingsOf{"port": port, "name": name}
	for name, value := range more {
		all[name] = value
	}
	text, _ := json.Marshal(all) // never fails for strings, numbers and bools
	return string(text)
}

func TestThePlugin(t *testing.T) {
	lab.Both(t, attempt, func(t *testing.T, way lab.Way) {
		t.Run("RecordTypes", func(t *testing.T) { eachType(t, way) })
		t.Run("ExpectedAnswers", func(t *testing.T) { answers(t, way) })
		t.Run("TLS", func(t *testing.T) { overTLS(t, way) })
		t.Run("ServerRestarts", func(t *testing.T) { restarts(t, way) })
		t.Run("ForgedAnswersAreIgnored", func(t *testing.T) { strangers(t, way) })
		t.Run("RecordsOfOthersDoNotCount", func(t *testing.T) { others(t, way) })
		t.Run("ALostDatagramIsSentAgain", func(t *testing.T) { lost(t, way) })
		t.Run("HostileAnswers", func(t *testing.T) { hostileAnswers(t, way) })
		t.Run("WrongSettingsAreNamed", func(t *testing.T) { checksSettings(t, way) })
	})
}

// eachType queries each type, over UDP and TCP.
func eachType(t *testing.T, way lab.Way) {
	port := start(t)
	cases := []struct{ name, kind, want string }{
		{"www.lab.test", "A", "192.0.2.7"},
		{"www.lab.test.", "A", "192.0.2.8"},
		{"www.lab.test", "AAAA", "2001:DB8:0::7"},
		{"alias.lab.test", "CNAME", "www.lab.test."},
		{"alias.lab.test", "A", "192.0.2.7"},
		{"lab.test", "MX", "10 mail.lab.test"},
		{"lab.test", "NS", "NS1.lab.test"},
		{"lab.test", "TXT", "v=spf1 -all"},
		{"lab.test", "SOA", "ns1.lab.test root.lab.test 7 3600 600 86400 60"},
		{"_sip._tcp.lab.test", "SRV", "1 2 5060 sip.lab.test"},
		{"7.2.0.192.in-addr.arpa", "PTR", "www.lab.test"},
		{"lab.test", "CAA", `0 ISSUE "ca.lab.test; account=\"7\""`},
		{"lab.test", "TYPE257", `0 issue ca.lab.test;\032account=\"7\"`},
		{"lab.test", "DS", "60485 13 2 D4B7D520E7BB5F0F67674A0CCEB1E3E0 614b93c4f9e99b8383f6a1e4469da50a"},
		{"lab.test", "CDS", "60485 13 1 d4b7d520e7bb5f0f67674a0cceb1e3e0614b93c4"},
		{"lab.test", "DNSKEY", "257 3 13 mdsswUyr3DPW132mOi8V9xESWE8jTo0dxCjjnopKl+GqJxpVXckHAeF+ KkxLbxILfDLUT0rAK9iUzy1L53eKGQ=="},
		{"lab.test", "CDNSKEY", "0 3 0 AA=="},
		{"lab.test", "HTTPS", `1 . port=08443 key65400="a b" mandatory=port,alpn alpn=h2,h3 ipv4hint=192.0.2.7,192.0.2.8 ipv6hint=2001:DB8:0::7`},
		{"_dns.lab.test", "SVCB", `2 dns.lab.test alpn="dot" no-default-alpn ech=AEX+DQ== dohpath=/q{?dns}`},
		{"_443._tcp.lab.test", "TLSA", "3 1 1 d2abde240d7cd3ee6b4b28c54df034b97983a1d16e8a410e4561cb106618e971"},
		{"lab.test", "SSHFP", "4 2 123456789abcdef67890123456789abcdef67890123456789abcdef123456789"},
		{"any.lab.test", "HINFO", `RFC8482 ""`},
		{"any.lab.test", "TYPE65280", `\# 4 0a 000001`},
		{"any.lab.test", "ANY", `HINFO "RFC8482" ""`},
		{"any.lab.test", "ANY", "A 192.0.2.7"},
		{"any.lab.test", "ANY", "TXT  spaces "},
		{"any.lab.test", "ANY", `TYPE65280 \# 4 0a000001`},
		{"null.lab.test", "MX", "0 ."},
		{"intl.lab.test", "CNAME", "Bücher.example"},
	}
	for _, c := range cases {
		for _, network := range []string{"udp", "tcp"} {
			settings := settingsOf{"network": network, "type": c.kind, "answers": []string{c.want}}
			if got := way.Must(t, with(port, c.name, settings))(lab.Timeout); got.Outcome != guest.Success {
				t.Errorf("%s %s over %s: %+v", c.name, c.kind, network, got)
			}
		}
	}
}

func answers(t *testing.T, way lab.Way) {
	port := start(t)
	cases := []struct {
		name, ask string
		more      settingsOf
		outcome   guest.Outcome
		reason    string
		detail    string
	}{
		{"no expectation", "www.lab.test", nil, guest.Success, "", `www.lab.test A: NOERROR, "192.0.2.7", "192.0.2.8"`},
		{"a missing record", "www.lab.test", settingsOf{"answers": []string{"192.0.2.99"}}, guest.Failure, "dns.records", "192.0.2.99"},
		{"too few records", "www.lab.test", settingsOf{"least": 3}, guest.Failure, "dns.records", "want 3 or more"},
		{"no records", "lab.test", nil, guest.Failure, "dns.records", "no records"},
		{"no records, which is right", "lab.test", settingsOf{"least": 0}, guest.Success, "", "no records"},
		{"no such name", "nxdomain.lab.test", nil, guest.Failure, "dns.rcode", "NXDOMAIN, no records, want NOERROR"},
		{"no such name, which is right", "nxdomain.lab.test", settingsOf{"rcode": "NXDOMAIN"}, guest.Success, "", ""},
		{"a name that should not be", "www.lab.test", settingsOf{"rcode": "NXDOMAIN"}, guest.Failure, "dns.rcode", "NOERROR"},
		{"a server in trouble", "servfail.lab.test", nil, guest.Failure, "dns.rcode", "SERVFAIL"},
		{"a server that refuses", "refused.lab.test", nil, guest.Failure, "dns.rcode", "REFUSED"},
		{"authority", "www.lab.test", settingsOf{"authoritative": true, "recursion": false}, guest.Success, "", ""},
		{"no authority", "foreign.lab.test", settingsOf{"authoritative": true}, guest.Failure, "dns.authoritative", ""},
		{"more than a datagram holds", "large.lab.test", settingsOf{"least": 100}, guest.Success, "", "and 90 more"},
	}
	for _, c := range cases {
		got := lab.Expect(t, way.Must(t, with(port, c.ask, c.more)), c.outcome, c.reason)
		if !strings.Contains(got.Detail, c.detail) {
			t.Errorf("%s: the detail is %q, want %q", c.name, got.Detail, c.detail)
		}
	}
}

func overTLS(t *testing.T, way lab.Way) {
	certificate, authority := lab.Certificate(t)
	port := startTLS(t, certificate)
	trusting := settingsOf{"network": "tcp", "tls": settingsOf{"ca_pem": authority}}
	lab.Expect(t, way.Must(t, with(port, "www.lab.test", trusting)), guest.Success, "")
	wary := settingsOf{"network": "tcp", "tls": settingsOf{}}
	lab.Expect(t, way.Must(t, with(port, "www.lab.test", wary)), guest.Failure, "tls.untrusted")
}

func restarts(t *testing.T, way lab.Way) {
	for _, network := range []string{"udp", "tcp"} {
		port := gatewaytest.FreePort(t)
		server := lab.Start(t, &lab.Server{Name: os.Args[0], Args: []string{"serve", port}})
		server.TurnsOver(t, network, way.Must(t, with(port, "www.lab.test", settingsOf{"network": network})))
	}
}

// reply returns a valid response to a query: one address of its name.
func reply(query []byte) []byte {
	const response, one = 0x80, 1
	m := append([]byte{}, query...)
	m[2] |= response
	m[7] = one
	return append(m, "\xc0\x0c\x00\x01\x00\x01\x00\x00\x00\x3c\x00\x04\xc0\x00\x02\x07"...)
}

// changed returns a valid response after a change.
func changed(query []byte, change func(m []byte)) []byte {
	m := reply(query)
	change(m)
	return m
}

// wrong returns responses that an attacker who cannot see the queries might send.
func wrong(query []byte) [][]byte {
	return [][]byte{
		nil,
		[]byte("x"),
		bytes.Repeat([]byte{0xff}, 5000),
		changed(query, func(m []byte) { m[0]++ }),               // another ID
		changed(query, func(m []byte) { m[2] &= 0x7f }),         // not a response
		changed(query, func(m []byte) { m[13]++ }),              // another name
		changed(query, func(m []byte) { m[len(query)-3] = 28 }), // another type
		changed(query, func(m []byte) { m[5] = 0 }),             // no question
		changed(query, func(m []byte) { m[5] = 2 }),             // two questions
	}
}

// strangers sends wrong responses before the valid one, and then only wrong ones.
func strangers(t *testing.T, way lab.Way) {
	late := hostile(t, func(query []byte) [][]byte { return append(wrong(query), reply(query)) })
	lab.Expect(t, way.Must(t, with(late, "www.lab.test", nil)), guest.Success, "")

	flood := hostile(t, func(query []byte) [][]byte {
		var all [][]byte
		for range maxStrays {
			all = append(all, changed(query, func(m []byte) { m[0]++ }))
		}
		return all
	})
	lab.Expect(t, way.Must(t, with(flood, "www.lab.test", nil)), guest.Failure, "dns.protocol")
}

// others responds with records of another name or of a class other than IN.
func others(t *testing.T, way lab.Way) {
	address := func(owner, class string) string { return owner + " 60 " + class + " A 192.0.2.7" }
	for name, c := range map[string]struct {
		records []string
		outcome guest.Outcome
		detail  string
	}{
		"another name":              {[]string{address("evil.test.", "IN")}, guest.Failure, "no records, 1 of another name or class, want 1 or more"},
		"class CHAOS":               {[]string{address("www.lab.test.", "CH")}, guest.Failure, "no records, 1 of another name or class, want 1 or more"},
		"an alias of another name":  {[]string{"evil.test. CNAME to.test.", address("to.test.", "IN")}, guest.Failure, "no records, 2 of another name or class"},
		"an alias of class CHAOS":   {[]string{"www.lab.test. CH CNAME to.test.", address("to.test.", "IN")}, guest.Failure, "no records, 2 of another name or class"},
		"another name beside":       {[]string{address("evil.test.", "IN"), address("WWW.lab.test.", "IN")}, guest.Success, `"192.0.2.7", 1 of another name or class`},
		"aliases in any order":      {[]string{address("c.test.", "IN"), "b.test. CNAME C.test.", "www.lab.test. CNAME b.test."}, guest.Success, `"192.0.2.7"`},
		"aliases that lead nowhere": {[]string{"www.lab.test. CNAME b.test.", "b.test. CNAME www.lab.test."}, guest.Failure, "no records, want"},
	} {
		port := startHandler(t, func(w dns.ResponseWriter, query *dns.Msg) {
			m := new(dns.Msg).SetReply(query)
			for _, text := range c.records {
				r, err := dns.NewRR(text)
				if err != nil {
					t.Error(err)
				}
				m.Answer = append(m.Answer, r)
			}
			_ = w.WriteMsg(m)
		})
		got := way.Must(t, with(port, "www.lab.test", settingsOf{"answers": []string{"192.0.2.7"}}))(lab.Timeout)
		if got.Outcome != c.outcome || !strings.Contains(got.Detail, c.detail) {
			t.Errorf("%s: got %+v, want %v, %q", name, got, c.outcome, c.detail)
		}
	}
}

// lost responds to the third datagram of each attempt, and then to none.
func lost(t *testing.T, way lab.Way) {
	var datagrams atomic.Int32
	port := hostile(t, func(query []byte) [][]byte {
		if datagrams.Add(1)%questions == 0 {
			return [][]byte{reply(query)}
		}
		return nil
	})
	attempt := way.Must(t, with(port, "www.lab.test", nil))
	testsync.Longer(t, "an answer to the third datagram", 300*time.Millisecond, testsync.Timeout, func(timeout time.Duration) bool {
		datagrams.Store(0)
		return attempt(timeout).Outcome == guest.Success
	})
	silent := hostile(t, func([]byte) [][]byte { return nil })
	lab.TimesOut(t, way.Must(t, with(silent, "www.lab.test", nil)), 300*time.Millisecond, "udp.timeout")
	lab.Expect(t, way.Must(t, with(gatewaytest.FreePort(t), "www.lab.test", nil)), guest.Failure, "udp.refused")
}

// hostileAnswers sends responses that cannot be parsed.
func hostileAnswers(t *testing.T, way lab.Way) {
	cases := []struct {
		name   string
		answer func(query []byte) []byte
		detail string
	}{
		{"a name that points to itself", func(query []byte) []byte {
			return changed(query, func(m []byte) { m[len(query)+1] = byte(len(query)) })
		}, "cannot be read"},
		{"a name behind the end", func(query []byte) []byte {
			return changed(query, func(m []byte) { m[len(query)], m[len(query)+1] = 0xff, 0xff })
		}, "cannot be read"},
		{"a record that is cut off", func(query []byte) []byte {
			m := reply(query)
			return m[:len(m)-1]
		}, "cannot be read"},
		{"fewer records than it says", func(query []byte) []byte {
			return changed(query, func(m []byte) { m[7] = 2 })
		}, "cannot be read"},
		{"more records than are looked at", func(query []byte) []byte {
			m := reply(query)
			one := m[len(query):]
			for range maxRecords {
				m = append(m, one...)
			}
			binary.BigEndian.PutUint16(m[6:], maxRecords+1)
			return m
		}, "more than"},
	}
	for _, c := range cases {
		port := hostile(t, func(query []byte) [][]byte { return [][]byte{c.answer(query)} })
		got := lab.Expect(t, way.Must(t, with(port, "www.lab.test", nil)), guest.Failure, "dns.protocol")
		if !strings.Contains(got.Detail, c.detail) {
			t.Errorf("%s: the detail is %q, want %q", c.name, got.Detail, c.detail)
		}
	}
	hostileStreams(t, way)
}

// hostileStreams sends bytes over TCP that are not a response.
func hostileStreams(t *testing.T, way lab.Way) {
	cases := []struct{ says, reason string }{
		{"", "tcp.closed"},
		{"\x00", "tcp.closed"},
		{"\x00\x00", "dns.protocol"},
		{"\xff\xffshort", "tcp.closed"},
		{"HTTP/1.1 400 Bad Request\r\n\r\n", "tcp.closed"},
	}
	for _, c := range cases {
		port := lab.Serve(t, func(conn net.Conn) {
			b := make([]byte, 512)
			_, _ = conn.Read(b) // a close before that would be a reset
			_, _ = io.WriteString(conn, c.says)
		})
		lab.Expect(t, way.Must(t, with(port, "www.lab.test", settingsOf{"network": "tcp"})), guest.Failure, c.reason)
	}
}

func checksSettings(t *testing.T, way lab.Way) {
	long := strings.Repeat("a", 64)
	cases := map[string][]string{
		"name": {
			with("53", "", nil), with("53", "a..b", nil), with("53", long+".test", nil), with("53", strings.Repeat("a.", 128), nil),
			`{"port": "53"}`,
		},
		"type": {
			with("53", "a", settingsOf{"type": "a"}), with("53", "a", settingsOf{"type": "AXFR"}), with("53", "a", settingsOf{"type": "TYPE252"}),
			with("53", "a", settingsOf{"type": "TYPE41"}), with("53", "a", settingsOf{"type": "TYPE65536"}),
		},
		"rcode":   {with("53", "a", settingsOf{"rcode": "0"})},
		"network": {with("53", "a", settingsOf{"network": "tls"})},
		"tls":     {with("53", "a", settingsOf{"tls": settingsOf{}})},
		"least":   {with("53", "a", settingsOf{"least": -1})},
		"answers": {
			with("53", "a", settingsOf{"answers": []string{"x"}, "rcode": "NXDOMAIN"}),
			with("53", "a", settingsOf{"answers": []string{"www.lab.test"}}),
			with("53", "a", settingsOf{"answers": []string{"192.0.2.7"}, "type": "AAAA"}),
			with("53", "a", settingsOf{"answers": []string{"mail.lab.test"}, "type": "MX"}),
			with("53", "a", settingsOf{"answers": []string{"0 issue"}, "type": "CAA"}),
			with("53", "a", settingsOf{"answers": []string{`0 issue "ca`}, "type": "CAA"}),
			with("53", "a", settingsOf{"answers": []string{"256 issue ca"}, "type": "CAA"}),
			with("53", "a", settingsOf{"answers": []string{"1 13 2 xyz"}, "type": "DS"}),
			with("53", "a", settingsOf{"answers": []string{"1 . alpn=h2 alpn=h3"}, "type": "HTTPS"}),
			with("53", "a", settingsOf{"answers": []string{"1 . ipv4hint=::1"}, "type": "HTTPS"}),
			with("53", "a", settingsOf{"answers": []string{"192.0.2.7"}, "type": "ANY"}),
			with("53", "a", settingsOf{"answers": []string{`\# 3 0a000001`}, "type": "TYPE99"}),
		},
	}
	for field, all := range cases {
		for _, settings := range all {
			lab.Refused(t, way, settings, field)
		}
	}
	if _, err := way(t, lab.Target{}, with("53", ".", settingsOf{"type": "NS"})); err != nil {
		t.Errorf("the root is refused: %v", err)
	}
}

func TestThePluginPassesTheConformanceKit(t *testing.T) {
	tier.CI(t)
	lab.Conforms(t, lab.Build(t, "."), start(t), `{"network": "tcp", "name": "www.lab.test"}`)
}

// FuzzRead verifies that parsing ends, whatever a server sends, and that its text of a record can be
// used as an expected record.
func FuzzRead(f *testing.F) {
	question := func(kind uint16) *settings {
		s := &settings{Name: "www.lab.test", Type: "A", Rcode: "NOERROR", Least: 1, Network: "udp"}
		if err := s.Prepare(); err != nil {
			f.Fatal(err)
		}
		s.question.Type = dnsmessage.Type(kind)
		return s
	}
	query, err := question(dns.TypeA).query(7)
	if err != nil {
		f.Fatal(err)
	}
	for _, m := range append(wrong(query), query, reply(query)) {
		f.Add(m, dns.TypeA)
	}
	for _, r := range records() {
		m := new(dns.Msg).SetQuestion("www.lab.test.", r.Header().Rrtype)
		m.Id, m.Response, r.Header().Name = 7, true, "www.lab.test."
		m.Answer = []dns.RR{r}
		for _, kind := range []uint16{r.Header().Rrtype, dns.TypeANY} {
			m.Question[0].Qtype = kind
			b, err := m.Pack()
			if err != nil {
				f.Fatal(err)
			}
			f.Add(b, kind)
		}
	}
	f.Fuzz(func(t *testing.T, m []byte, kind uint16) {
		s := question(kind)
		a, err := s.read(m, 7)
		if len(a.records) > maxRecords {
			t.Errorf("%d records of %d bytes", len(a.records), len(m))
		}
		if r := s.judge(a); err == nil && r.Outcome == guest.Success && a.rcode != dnsmessage.RCodeSuccess {
			t.Errorf("%x is judged as %+v", m, r)
		}
		for _, text := range a.records {
			if again, wrong := normal(text, s.question.Type); err == nil && (wrong != nil || again != text) {
				t.Errorf("%x has the record %q, expected as %q: %v", m, text, again, wrong)
			}
		}
	})
}
