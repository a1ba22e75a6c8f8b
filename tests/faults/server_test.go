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

	"github.com/sonde-probe/sonde/tests/shortagetest"
)

// The ports of each target.
const (
	httpPort  = 80   // 200, or 500 when broken
	linePort  = 81   // sends "ok\n", or "no\n" when broken, and closes the connection
	redisPort = 6379 // answers +PONG, or -LOADING when broken
	dnsPort   = 53   // on the address of target 0: hN.test is the address of target N
)

// network holds the addresses of the targets, which are all local to the server's
// namespace.
var network = netip.MustParsePrefix("10.77.0.0/16")

// addressOf returns the address of a target.
func addressOf(n int) netip.Addr {
	a := network.Addr().As4()
	binary.BigEndian.PutUint16(a[2:], uint16(n+1))
	return netip.AddrFrom4(a)
}

// server is all targets. It answers on any address.
type server struct {
	mu     sync.Mutex // guards broken
	broken map[string]bool
}

// serve runs the server until its standard input ends. A line "break ADDRESS" breaks a
// target, "mend" mends all, and "names ADDRESS" starts the name server, once there is a
// route to the address. Each line is answered with "done".
func serve() int {
	s := &server{broken: map[string]bool{}}
	if err := s.listen(); err != nil {
		fmt.Println(err)
		return 1
	}
	fmt.Println("ready")
	for in := bufio.NewScanner(os.Stdin); in.Scan(); fmt.Println("done") {
		switch verb, address, _ := strings.Cut(in.Text(), " "); verb {
		case "break":
			s.mu.Lock()
			s.broken[address] = true
			s.mu.Unlock()
		case "mend":
			s.mu.Lock()
			clear(s.broken)
			s.mu.Unlock()
		case "names":
			c, err := net.ListenPacket("udp4", net.JoinHostPort(address, strconv.Itoa(dnsPort)))
			if err != nil {
				fmt.Println(err)
				return 1
			}
			go shortagetest.ServeNames(c, resolve)
		}
	}
	return 0
}

func (s *server) isBroken(at net.Addr) bool {
	host, _, _ := net.SplitHostPort(at.String())
	s.mu.Lock()
	defer s.mu.Unlock()
	return s.broken[host]
}

// listen starts to serve all ports.
func (s *server) listen() error {
	web, err := net.Listen("tcp4", ":"+strconv.Itoa(httpPort))
	if err != nil {
		return err
	}
	go http.Serve(web, http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		if at := r.Context().Value(http.LocalAddrContextKey).(net.Addr); s.isBroken(at) {
			w.WriteHeader(http.StatusInternalServerError)
		}
	}))
	if err := s.serveLines(linePort, false, "ok\n", "no\n"); err != nil {
		return err
	}
	return s.serveLines(redisPort, true, "+PONG\r\n", "-LOADING Redis is loading the dataset in memory\r\n")
}

// serveLines sends a line on each connection, or first reads a request.
func (s *server) serveLines(port int, reads bool, well, broken string) error {
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
			go func() {
				defer conn.Close()
				text := well
				if s.isBroken(conn.LocalAddr()) {
					text = broken
				}
				if buf := make([]byte, 512); reads {
					if _, err := conn.Read(buf); err != nil {
						return
					}
				}
				_, _ = io.WriteString(conn, text)
			}()
		}
	}()
	return nil
}

// resolve returns the address of the target of a name, such as h17.
func resolve(label string) (ip netip.Addr, answers bool) {
	target, err := strconv.Atoi(strings.TrimPrefix(label, "h"))
	if err != nil {
		return netip.Addr{}, true
	}
	return addressOf(target), true
}
