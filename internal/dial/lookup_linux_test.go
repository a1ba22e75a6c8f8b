package dial

import (
	"context"
	"errors"
	"fmt"
	"net"
	"net/netip"
	"os"
	"strings"
	"sync/atomic"
	"syscall"
	"testing"
	"time"

	"github.com/sonde-probe/sonde/probe"
	"github.com/sonde-probe/sonde/tests/faulttest"
	"github.com/sonde-probe/sonde/tests/testsync"
	"github.com/sonde-probe/sonde/tests/tier"
)

// resolve looks a name up, with a time limit that is sufficient if a name server responds.
func resolve(t *testing.T, name string, within time.Duration) error {
	t.Helper()
	ctx, cancel := context.WithTimeout(t.Context(), within)
	defer cancel()
	ips, err := new(Dialer).Resolve(ctx, name, new(probe.Timings))
	if err == nil && ips[0] != netip.MustParseAddr("127.0.0.9") {
		t.Errorf("%s has the addresses %v", name, ips)
	}
	return err
}

const (
	plenty = time.Minute

	// soon is less than the 5 seconds that package net waits for the response to a query.
	soon = 4 * time.Second
)

// Package net queries 127.0.0.1 if it cannot open resolv.conf. A name server there knows other names.
func TestAResolvConfThatCannotBeOpenedIsNotTheNamesFault(t *testing.T) {
	if !faulttest.InNamespaces(t) {
		return
	}
	faulttest.Replace(t, resolvConf, "nameserver 127.0.0.7\n")
	faulttest.Replace(t, hostsFile, "127.0.0.9 written.example\n")
	faulttest.NameServer(t, "127.0.0.7")
	faulttest.NameServer(t, "127.0.0.1")
	restore := faulttest.NoDescriptors(t)
	for _, name := range []string{"known.example.", "written.example."} {
		wantError(t, resolve(t, name, plenty), probe.Unknown, probe.ReasonResources)
	}
	restore()
	for _, name := range []string{"known.example.", "written.example."} {
		if err := resolve(t, name, plenty); err != nil {
			t.Errorf("%s: %v", name, err)
		}
	}
	wantError(t, resolve(t, "missing.example.", plenty), probe.Failure, probe.ReasonDNSNotFound)
}

func TestOnlyNameServersOfResolvConfAreAsked(t *testing.T) {
	if !faulttest.InNamespaces(t) {
		return
	}
	for _, test := range []struct {
		conf, server string
		age          time.Duration
		asked        bool
	}{
		{"nameserver 127.0.0.7\n", "127.0.0.7:53", 0, true},
		{"nameserver 127.0.0.7\n", "127.0.0.1:53", time.Hour, false},
		{"search example\nnameserver 127.0.0.7 # ours\n", "[::1]:53", 0, false},
		{"nameserver 127.0.0.7\nnameserver 127.0.0.1\n", "127.0.0.1:53", 0, true},
		{"options timeout:1\n", "127.0.0.1:53", time.Hour, true},  // the default of resolv.conf(5)
		{"options timeout:1\n", "127.0.0.1:53", -time.Hour, true}, // the clock was set
		{"", "127.0.0.1:53", 0, false},                            // it is being written
	} {
		t.Run(fmt.Sprint(test.conf, test.server, test.age), func(t *testing.T) {
			faulttest.Replace(t, resolvConf, test.conf)
			changed := time.Now().Add(-test.age)
			if err := os.Chtimes(resolvConf, changed, changed); err != nil {
				t.Fatal(err)
			}
			if err := checkServer(test.server); err == nil != test.asked || err != nil && !errors.Is(err, errUnlisted) {
				t.Errorf("got %v", err)
			}
		})
	}
	faulttest.NoDescriptors(t)
	if err := checkServer("127.0.0.1:53"); !errors.Is(err, syscall.EMFILE) {
		t.Errorf("without descriptors: got %v", err)
	}
}

func TestALookupWithoutAFreePortSaysNothingAboutTheName(t *testing.T) {
	if !faulttest.InNamespaces(t) {
		return
	}
	faulttest.Replace(t, resolvConf, "nameserver 127.0.0.7\n")
	faulttest.NameServer(t, "127.0.0.7")
	if err := resolve(t, "known.example.", plenty); err != nil {
		t.Fatal(err)
	}
	if err := os.WriteFile("/proc/sys/net/ipv4/ip_local_port_range", []byte("40000 40007"), 0); err != nil {
		t.Fatal(err)
	}
	var taken []net.Conn
	defer func() {
		for _, conn := range taken {
			conn.Close()
		}
	}()
	for {
		conn, err := net.Dial("udp", "127.0.0.8:9")
		if err != nil {
			break
		}
		taken = append(taken, conn)
	}
	for _, name := range []string{"known.example.", "missing.example."} {
		wantError(t, resolve(t, name, plenty), probe.Unknown, probe.ReasonResources)
	}
}

// Whether the name is to blame for a silent name server is up to the engine, by the reason and by the results of other lookups.
func TestALookupSaysWhetherANameServerAnswered(t *testing.T) {
	if !faulttest.InNamespaces(t) {
		return
	}
	faulttest.Replace(t, resolvConf, "nameserver 127.0.0.7\n")
	faulttest.Replace(t, hostsFile, "127.0.0.9 written.example\n")
	wantError(t, resolve(t, "known.example.", plenty), probe.Failure, probe.ReasonDNSFailed) // no process listens
	faulttest.NameServer(t, "127.0.0.7")
	wantError(t, resolve(t, "silent.example.", 200*time.Millisecond), probe.Failure, probe.ReasonDNSTimeout)
	wantError(t, resolve(t, "missing.example.", plenty), probe.Failure, probe.ReasonDNSNotFound)
	for name, asked := range map[string]bool{"known.example.": true, "written.example.": false} {
		var took probe.Timings
		if _, err := new(Dialer).Resolve(t.Context(), name, &took); err != nil || took.Resolve > 0 != asked {
			t.Errorf("%s: got %v after %v", name, err, took.Resolve)
		}
	}
}

// listenNames answers queries like faulttest.NameServer, except those that lost selects, and counts all.
func listenNames(t *testing.T, address string, lost func(query int64) bool) (queries *atomic.Int64) {
	t.Helper()
	conn, err := net.ListenPacket("udp", address+":53")
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { conn.Close() })
	queries = new(atomic.Int64)
	go faulttest.ServeNames(conn, func(name string) (ip netip.Addr, answers bool) {
		if strings.HasPrefix(name, "known.") {
			ip = netip.MustParseAddr("127.0.0.9")
		}
		return ip, !lost(queries.Add(1)) && name != "silent.example"
	})
	return queries
}

func always(int64) bool { return true }
func never(int64) bool  { return false }

func TestASilentNameServerFailsNoNameThatAnotherKnows(t *testing.T) {
	tier.Slow(t)
	if !faulttest.InNamespaces(t) {
		return
	}
	faulttest.Replace(t, resolvConf, "nameserver 127.0.0.7\nnameserver 127.0.0.8\n")
	dead := listenNames(t, "127.0.0.7", always)
	listenNames(t, "127.0.0.8", never)
	testsync.Longer(t, "an answer beside a silent first name server", 2*time.Second, soon, func(timeout time.Duration) bool {
		dead.Store(0)
		return resolve(t, "known.example.", timeout) == nil && dead.Load() == 2 // one query per address family
	})
	wantError(t, resolve(t, "missing.example.", plenty), probe.Failure, probe.ReasonDNSNotFound)
}

func TestSilenceOfAllNameServersIsNotTheNamesFault(t *testing.T) {
	if !faulttest.InNamespaces(t) {
		return
	}
	faulttest.Replace(t, resolvConf, "nameserver 127.0.0.7\nnameserver 127.0.0.8\n")
	wantError(t, resolve(t, "known.example.", plenty), probe.Unknown, probe.ReasonResolver) // no process listens
	first, second := listenNames(t, "127.0.0.7", never), listenNames(t, "127.0.0.8", never)
	testsync.Longer(t, "queries of both name servers", 200*time.Millisecond, soon, func(timeout time.Duration) bool {
		first.Store(0)
		second.Store(0)
		err := resolve(t, "silent.example.", timeout)
		if first.Load() == 0 || second.Load() == 0 {
			return false
		}
		wantError(t, err, probe.Unknown, probe.ReasonResolver)
		return true
	})
}

func TestALostQueryFailsNoLookup(t *testing.T) {
	tier.Slow(t)
	if !faulttest.InNamespaces(t) {
		return
	}
	faulttest.Replace(t, resolvConf, "nameserver 127.0.0.7\n")
	queries := listenNames(t, "127.0.0.7", func(query int64) bool { return query <= 2 }) // one per address family
	testsync.Longer(t, "an answer after a lost query", 2*time.Second, soon, func(timeout time.Duration) bool {
		queries.Store(0)
		began := time.Now()
		err := resolve(t, "known.example.", timeout)
		took := time.Since(began)
		return err == nil && took >= timeout/4 && took < timeout // otherwise the lost queries were those of an earlier lookup
	})
}

// A name server that falls silent, or comes back, answers only some of a lookup's queries.
func TestANameIsMissingOnlyIfEachQueryWasAnswered(t *testing.T) {
	if !faulttest.InNamespaces(t) {
		return
	}
	faulttest.Replace(t, resolvConf, "nameserver 127.0.0.7\nsearch test\n")
	listenNames(t, "127.0.0.7", never)
	wantError(t, resolve(t, "silent.example", 200*time.Millisecond), probe.Failure, probe.ReasonDNSTimeout) // silent.example.test does not exist
	wantError(t, resolve(t, "missing.example", plenty), probe.Failure, probe.ReasonDNSNotFound)
}

func TestAQuestionIsOpenUntilItIsAnswered(t *testing.T) {
	const success, serverFailure, noSuchName = 0, 2, 3
	l := newLookup(t.Context())
	query := func(network, text string) *queryConn {
		return &queryConn{lookup: l, network: network, query: []byte(text)}
	}
	header := strings.Repeat(".", headerSize)
	a, aaaa := query("udp", header+"name, A"), query("udp", header+"name, AAAA")
	l.ask(a.question())
	l.ask(aaaa.question())
	if l.answer(aaaa.question(), success); len(l.open) != 1 || !l.open[a.question()] {
		t.Errorf("open: %v", l.open)
	}
	if l.answer(a.question(), serverFailure); len(l.open) != 1 || !l.answered {
		t.Errorf("after an error of the name server, open: %v", l.open)
	}
	if l.answer(query("tcp", "14"+header+"name, A").question(), noSuchName); len(l.open) != 0 {
		t.Errorf("open: %v", l.open)
	}
	missing := &net.DNSError{Err: "no such host", IsNotFound: true}
	if err := l.explain("name", missing); err != missing {
		t.Errorf("got %v", err)
	}
	if c := (&queryConn{network: "udp"}); c.code([]byte(header)) != '.'&0xf || c.code([]byte("short")) != 0 {
		t.Error("wrong code")
	}
}

// An engine that is stopped between the queries for both families continues after the deadline.
func TestAQueryThatIsNotSentIsNotAnswered(t *testing.T) {
	ctx, cancel := context.WithDeadline(t.Context(), time.Now().Add(-time.Second))
	defer cancel()
	l := newLookup(ctx)
	if conn, err := l.dial(ctx, "udp", "192.0.2.1:53"); err == nil {
		conn.Close()
		t.Fatal("connected after the deadline")
	}
	err := Classify(ctx, Resolving, l.explain("name", &net.DNSError{Err: "no such host", IsNotFound: true}))
	wantError(t, err, probe.Failure, probe.ReasonDNSTimeout)
}

// For example, an IPv6 name server on a machine without a route to it.
func TestANameServerThatCannotBeReachedDoesNotHideThatANameIsMissing(t *testing.T) {
	if !faulttest.InNamespaces(t) {
		return
	}
	faulttest.Replace(t, resolvConf, "nameserver 2001:db8::1\nnameserver 127.0.0.7\nsearch test\n")
	listenNames(t, "127.0.0.7", never)
	wantError(t, resolve(t, "missing.example", plenty), probe.Failure, probe.ReasonDNSNotFound)
}

// One query of a lookup was answered, and the other one could not be sent to any name server.
func TestAQueryThatNoNameServerCouldBeSentIsNotAnswered(t *testing.T) {
	l := newLookup(t.Context())
	l.servers = func() int { return 2 }
	missing := &net.DNSError{Err: "no such host", IsNotFound: true}
	for _, test := range []struct {
		server string
		want   probe.Reason
	}{{"a", probe.ReasonDNSNotFound}, {"a", probe.ReasonDNSNotFound}, {"b", probe.ReasonDNSTimeout}} {
		l.unsent[test.server] = true
		wantError(t, Classify(t.Context(), Resolving, l.explain("name", missing)), probe.Failure, test.want)
	}
}

func TestTheNameServerThatDoesNotAnswerIsKnown(t *testing.T) {
	if !faulttest.InNamespaces(t) {
		return
	}
	tier.Slow(t)
	faulttest.Replace(t, resolvConf, "nameserver 127.0.0.7\nnameserver 127.0.0.8\n")
	faulttest.NameServer(t, "127.0.0.8")
	silent, err := net.ListenPacket("udp", "127.0.0.7:53")
	if err != nil {
		t.Fatal(err)
	}
	for SilentNameServers() == nil {
		if err := resolve(t, "known.example.", soon); err != nil {
			t.Fatal(err)
		}
	}
	if got := SilentNameServers(); len(got) != 1 || got[0].Address != "127.0.0.7:53" || got[0].Unanswered < minUnanswered || time.Since(got[0].Since) > plenty {
		t.Errorf("got %+v", got)
	}
	silent.Close()
	faulttest.NameServer(t, "127.0.0.7")
	if err := resolve(t, "known.example.", plenty); err != nil {
		t.Fatal(err)
	}
	if got := SilentNameServers(); got != nil {
		t.Errorf("after its answer: got %+v", got)
	}
}

func TestANameServerIsForgottenThatIsNotAskedAnyMore(t *testing.T) {
	var u unansweredQueries
	now := time.Now()
	for range minUnanswered - 1 {
		u.record("10.0.0.1:53", now, false)
	}
	if u.record("10.0.0.2:53", now, false); u.silent(now) != nil {
		t.Error("two queries without an answer are enough")
	}
	if u.record("10.0.0.1:53", now, false); len(u.silent(now)) != 1 {
		t.Error("three queries without an answer are not enough")
	}
	if u.silent(now.Add(forgetServer+time.Minute)) != nil || len(u.all) != 0 {
		t.Error("it is remembered")
	}
}
