//go:build linux

package faults

import (
	"bufio"
	"encoding/binary"
	"fmt"
	"io"
	"net"
	"net/http"
	"net/netip"
	"os"
	"strconv"
	"strings"
	"sync"
	"time"

	"github.com/sonde-probe/sonde/tests/faulttest"
)

// The ports of each target.
const (
	httpPort  = 80   // 200, or 500 when broken
	linePort  = 81   // sends "ok\n", or "no\n" when broken, and closes the connection
	redisPort = 6379 // responds +PONG, or -LOADING when broken
	dnsPort   = 53   // on the addresses of the name servers: hN.test is the address of target N
)

// The numbers of the name servers' addresses.
const (
	nameServer      = 0
	otherNameServer = 60_000 // no target has it
)

// network has the addresses of the targets, all of which are local to the server's namespace.
var network = netip.MustParsePrefix("10.77.0.0/16")

// addressOf returns the address of a target.
func addressOf(n int) netip.Addr {
	a := network.Addr().As4()
	binary.BigEndian.PutUint16(a[2:], uint16(n+1))
	return netip.AddrFrom4(a)
}

// mode is the way in which a target responds.
type mode int

const (
	well mode = iota
	broken
	hanging // it accepts connections and never responds
)

// server represents all targets. It responds on any address.
type server struct {
	mu    sync.Mutex // guards modes and delay
	modes map[string]mode
	delay time.Duration // of each response
}

// serve runs the server to the end of its standard input. Each line is a command, which is answered with "done".
func serve() int {
	s := &server{modes: map[string]mode{}}
	if err := s.listen(); err != nil {
		fmt.Println(err)
		return 1
	}
	fmt.Println("ready")
	for in := bufio.NewScanner(os.Stdin); in.Scan(); {
		verb, argument, _ := strings.Cut(in.Text(), " ")
		if err := s.do(verb, argument); err != nil {
			fmt.Println(err)
			return 1
		}
		fmt.Println("done")
	}
	return 0
}

// do executes a command: "break ADDRESS" and "hang ADDRESS" change a target, "mend" repairs all, "delay DURATION" delays all
// responses, and "names ADDRESS" starts the name server, once there is a route to the address.
func (s *server) do(verb, argument string) (err error) {
	if verb == "names" {
		c, err := net.ListenPacket("udp4", net.JoinHostPort(argument, strconv.Itoa(dnsPort)))
		if err == nil {
			go faulttest.ServeNames(c, resolve)
		}
		return err
	}
	s.mu.Lock()
	defer s.mu.Unlock()
	switch verb {
	case "break":
		s.modes[argument] = broken
	case "hang":
		s.modes[argument] = hanging
	case "mend":
		clear(s.modes)
	case "delay":
		s.delay, err = time.ParseDuration(argument)
	}
	return err
}

// answer waits until the target at an address should respond, and returns how. It returns hanging if the client has disconnected.
func (s *server) answer(at net.Addr, gone <-chan struct{}) mode {
	host, _, _ := net.SplitHostPort(at.String())
	s.mu.Lock()
	m, delay := s.modes[host], s.delay
	s.mu.Unlock()
	var passed <-chan time.Time
	if m != hanging {
		passed = time.After(delay)
	}
	select {
	case <-passed:
		return m
	case <-gone:
		return hanging
	}
}

// listen starts serving all ports.
func (s *server) listen() error {
	web, err := net.Listen("tcp4", ":"+strconv.Itoa(httpPort))
	if err != nil {
		return err
	}
	go http.Serve(web, http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		if s.answer(r.Context().Value(http.LocalAddrContextKey).(net.Addr), r.Context().Done()) == broken {
			w.WriteHeader(http.StatusInternalServerError)
		}
	}))
	if err := s.serveLines(linePort, false, "ok\n", "no\n"); err != nil {
		return err
	}
	return s.serveLines(redisPort, true, "+PONG\r\n", "-LOADING Redis is loading the dataset in memory\r\n")
}

// serveLines sends a line on each connection, after reading a request if reads is set.
func (s *server) serveLines(port int, reads bool, good, bad string) error {
	l, err := net.Listen("tcp4", ":"+strconv.Itoa(port))
	if err != nil {
		return err
	}
	go func() {
		for {
			conn, err := l.Accept()
			if err != nil {
				return
			}
			go s.serveLine(conn, reads, good, bad)
		}
	}()
	return nil
}

func (s *server) serveLine(conn net.Conn, reads bool, good, bad string) {
	defer conn.Close()
	buf := make([]byte, 512)
	if reads {
		if _, err := conn.Read(buf); err != nil {
			return
		}
	}
	gone := make(chan struct{})
	go func() {
		defer close(gone)
		_, _ = io.Copy(io.Discard, conn) // ends when the client or this server closes it
	}()
	switch s.answer(conn.LocalAddr(), gone) {
	case well:
		_, _ = io.WriteString(conn, good)
	case broken:
		_, _ = io.WriteString(conn, bad)
	}
}

// resolve returns the address of the target with a name such as h17.test.
func resolve(name string) (ip netip.Addr, answers bool) {
	target, err := strconv.Atoi(strings.TrimSuffix(strings.TrimPrefix(name, "h"), ".test"))
	if err != nil {
		return netip.Addr{}, true
	}
	return addressOf(target), true
}
