package main

import (
	"crypto/tls"
	"errors"
	"fmt"
	"net"
	"os"
	"strconv"
	"strings"
	"sync"
	"testing"

	"github.com/miekg/dns"
)

// zone has the server's records in zone file format.
const zone = `
www.lab.test. A 192.0.2.7
www.lab.test. A 192.0.2.8
www.lab.test. AAAA 2001:db8::7
alias.lab.test. CNAME www.lab.test.
alias.lab.test. A 192.0.2.7
lab.test. MX 10 Mail.lab.test.
lab.test. NS ns1.lab.test.
lab.test. TXT "v=spf1 " "-all"
lab.test. SOA ns1.lab.test. root.lab.test. 7 3600 600 86400 60
_sip._tcp.lab.test. SRV 1 2 5060 sip.lab.test.
7.2.0.192.in-addr.arpa. PTR www.lab.test.
lab.test. CAA 0 Issue "ca.lab.test; account=\"7\""
lab.test. DS 60485 13 2 D4B7D520E7BB5F0F67674A0CCEB1E3E0614B93C4F9E99B8383F6A1E4469DA50A
lab.test. CDS 60485 13 1 D4B7D520E7BB5F0F67674A0CCEB1E3E0614B93C4
lab.test. DNSKEY 257 3 13 mdsswUyr3DPW132mOi8V9xESWE8jTo0dxCjjnopKl+GqJxpVXckHAeF+KkxLbxILfDLUT0rAK9iUzy1L53eKGQ==
lab.test. CDNSKEY 0 3 0 AA==
lab.test. HTTPS 1 . mandatory=alpn,port alpn="h2,h3" port=8443 ipv4hint=192.0.2.7,192.0.2.8 ipv6hint=2001:db8::7 key65400="a b"
_dns.lab.test. SVCB 2 DNS.lab.test. alpn=dot no-default-alpn ech=AEX+DQ== dohpath=/q{?dns}
_443._tcp.lab.test. TLSA 3 1 1 D2ABDE240D7CD3EE6B4B28C54DF034B97983A1D16E8A410E4561CB106618E971
lab.test. SSHFP 4 2 123456789ABCDEF67890123456789ABCDEF67890123456789ABCDEF123456789
any.lab.test. HINFO "RFC8482" ""
any.lab.test. A 192.0.2.7
any.lab.test. TXT " spaces "
any.lab.test. TYPE65280 \# 4 0A000001
null.lab.test. MX 0 .
intl.lab.test. CNAME xn--bcher-kva.example.
`

// answerer returns a handler that responds from the zone as an authoritative server. If a name
// starts with an rcode, that is the response code. large.lab.test has many addresses; the response
// for foreign.lab.test is not authoritative.
func answerer() dns.HandlerFunc {
	known := records()
	return func(w dns.ResponseWriter, query *dns.Msg) {
		m := new(dns.Msg).SetReply(query)
		question := query.Question[0]
		m.Authoritative = !strings.HasPrefix(question.Name, "foreign.")
		first, _, _ := strings.Cut(question.Name, ".")
		m.Rcode = dns.StringToRcode[strings.ToUpper(first)]
		for _, r := range known {
			head := r.Header()
			if head.Name == question.Name && (question.Qtype == dns.TypeANY || head.Rrtype == question.Qtype || head.Rrtype == dns.TypeCNAME) {
				m.Answer = append(m.Answer, r)
			}
		}
		if w.RemoteAddr().Network() == "udp" {
			m.Truncate(dns.MinMsgSize)
		}
		_ = w.WriteMsg(m) // the client may have disconnected
	}
}

// records parses the zone.
func records() []dns.RR {
	var known []dns.RR
	p := dns.NewZoneParser(strings.NewReader(zone+many()), "", "")
	p.SetDefaultTTL(60)
	for r, ok := p.Next(); ok; r, ok = p.Next() {
		known = append(known, r)
	}
	if err := p.Err(); err != nil {
		panic(err) // a mistake in this file
	}
	return known
}

// many returns more records than fit in a datagram.
func many() string {
	text := "foreign.lab.test. A 192.0.2.9\n"
	for i := range 100 {
		text += fmt.Sprintf("large.lab.test. A 192.0.2.%d\n", i)
	}
	return text
}

// start serves over UDP and TCP on one port of 127.0.0.1, and returns it.
func start(t testing.TB) string { return startHandler(t, answerer()) }

func startHandler(t testing.TB, handler dns.HandlerFunc) string {
	t.Helper()
	l, c := listenBoth(t)
	serve(t, &dns.Server{Listener: l, Handler: handler})
	serve(t, &dns.Server{PacketConn: c, Handler: handler})
	return portOf(l.Addr())
}

// startTLS serves over TLS.
func startTLS(t testing.TB, certificate tls.Certificate) string {
	t.Helper()
	l, err := tls.Listen("tcp", "127.0.0.1:0", &tls.Config{Certificates: []tls.Certificate{certificate}})
	if err != nil {
		t.Fatal(err)
	}
	serve(t, &dns.Server{Listener: l, Handler: answerer()})
	return portOf(l.Addr())
}

// listenBoth listens on a port that is free for both TCP and UDP.
func listenBoth(t testing.TB) (net.Listener, net.PacketConn) {
	t.Helper()
	for range 20 {
		l, err := net.Listen("tcp", "127.0.0.1:0")
		if err != nil {
			t.Fatal(err)
		}
		if c, err := net.ListenPacket("udp", l.Addr().String()); err == nil {
			return l, c
		}
		l.Close()
	}
	t.Fatal("no port is free for both tcp and udp")
	return nil, nil
}

func portOf(a net.Addr) string {
	_, port, _ := net.SplitHostPort(a.String())
	return port
}

// serve runs a server until the test ends.
func serve(t testing.TB, s *dns.Server) {
	t.Helper()
	ready := make(chan struct{})
	s.NotifyStartedFunc = func() { close(ready) }
	var running sync.WaitGroup
	running.Go(func() {
		if err := s.ActivateAndServe(); err != nil && !errors.Is(err, net.ErrClosed) {
			t.Error(err)
		}
	})
	<-ready
	t.Cleanup(func() {
		if err := s.Shutdown(); err != nil {
			t.Error(err)
		}
		running.Wait()
	})
}

// hostile starts a server on 127.0.0.1 that responds to each datagram with the datagrams that
// answer returns. It returns the port.
func hostile(t testing.TB, answer func(query []byte) [][]byte) string {
	t.Helper()
	c, err := net.ListenPacket("udp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	var running sync.WaitGroup
	running.Go(func() {
		b := make([]byte, dns.MinMsgSize)
		for {
			n, from, err := c.ReadFrom(b)
			if err != nil {
				return
			}
			for _, datagram := range answer(b[:n]) {
				_, _ = c.WriteTo(datagram, from) // the client may have disconnected
			}
		}
	})
	t.Cleanup(func() { c.Close(); running.Wait() })
	return strconv.Itoa(c.LocalAddr().(*net.UDPAddr).Port)
}

// TestMain runs this program as a server if its first argument is serve.
func TestMain(m *testing.M) {
	if len(os.Args) != 3 || os.Args[1] != "serve" {
		os.Exit(m.Run())
	}
	handler := answerer()
	failed := make(chan error)
	for _, network := range []string{"udp", "tcp"} {
		s := &dns.Server{Addr: "127.0.0.1:" + os.Args[2], Net: network, Handler: handler}
		go func() { failed <- s.ListenAndServe() }()
	}
	fmt.Fprintln(os.Stderr, <-failed)
	os.Exit(1)
}
