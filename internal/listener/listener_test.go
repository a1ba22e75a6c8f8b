package listener_test

import (
	"bufio"
	"context"
	"fmt"
	"io"
	"net"
	"net/http"
	"net/http/httptest"
	"net/netip"
	"slices"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	"github.com/sonde-probe/sonde/internal/listener"
	"github.com/sonde-probe/sonde/tests/testsync"
)

const token = "correct-horse-battery"

func TestLoopbackAddressesAreRecognized(t *testing.T) {
	for address, want := range map[string]struct{ loopback, valid bool }{
		"127.0.0.1:9650": {true, true}, "127.8.8.8:0": {true, true}, "[::1]:1": {true, true}, "[::ffff:127.0.0.1]:1": {true, true}, "LocalHost:1": {true, true},
		"0.0.0.0:1": {false, true}, ":1": {false, true}, "[::]:1": {false, true}, "localhost.example:1": {false, true},
		"127.0.0.1:http": {true, false}, "127.0.0.1:65536": {true, false}, "127.0.0.1": {false, false}, "": {false, false},
	} {
		if loopback, valid := listener.Loopback(address); loopback != want.loopback || valid != want.valid {
			t.Errorf("%q gives %v, %v", address, loopback, valid)
		}
	}
}

func TestOnlyTheTokenMatches(t *testing.T) {
	for text, want := range map[string]string{token: "", "": "", "short": "needs at least 16", strings.Repeat("é", 9): "ASCII", token + " x": "without spaces", token + "\n": "trimspace"} {
		if got := listener.Token(text).Problem(); got == "" != (want == "") || !strings.Contains(got, want) {
			t.Errorf("of %q it says %q, want %q", text, got, want)
		}
	}
	for header, want := range map[string]bool{
		"Bearer " + token: true, "bearer  " + token + " ": true, "Bearer " + token + "x": false, "Bearer " + token[:20]: false,
		"Basic " + token: false, token: false, "Bearer": false, "": false,
	} {
		r := httptest.NewRequest(http.MethodGet, "/", nil)
		r.Header.Set("Authorization", header)
		if got := listener.Token(token).Matches(listener.Bearer(r)); got != want {
			t.Errorf("%q matches: %v", header, got)
		}
		if !listener.Token("").Matches(listener.Bearer(r)) {
			t.Errorf("%q does not match no token", header)
		}
	}
}

// client is the client's end of a connection.
type client struct {
	net.Conn
	*bufio.Reader
}

// request connects and sends a request.
func request(t *testing.T, p *testsync.Pipes, path string) client {
	t.Helper()
	conn, err := p.Dial(t.Context(), "", "")
	if err != nil {
		t.Fatal(err)
	}
	if _, err := io.WriteString(conn, "GET "+path+" HTTP/1.1\r\nHost: x\r\n\r\n"); err != nil {
		t.Fatal(err)
	}
	synctest.Wait()
	return client{conn, bufio.NewReader(conn)}
}

// response returns the body of the response, or the text of an error.
func (c client) response() string {
	r, err := http.ReadResponse(c.Reader, nil)
	if err != nil {
		return err.Error()
	}
	body, err := io.ReadAll(r.Body)
	if err != nil {
		return err.Error()
	}
	synctest.Wait()
	return string(body)
}

// Beyond the limit, idle connections are closed first, and those of KeepOpen last. At shutdown, the contexts of requests are done,
// and Serve waits for their handlers.
func TestANewConnectionTakesThePlaceOfTheOneThatNeedsItLeast(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		handler := http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
			if r.URL.Path == "/stream" {
				listener.KeepOpen(r.Context())
			}
			if r.URL.Path != "/" {
				<-r.Context().Done()
			}
			_, _ = io.WriteString(w, "done")
		})
		p, served := testsync.NewPipes(), make(chan error, 1)
		ctx, stop := context.WithCancel(t.Context())
		go func() {
			served <- listener.HTTP{Handler: handler, MaxConnections: 3, Grace: time.Second}.Serve(ctx, p)
		}()

		stream := request(t, p, "/stream")
		time.Sleep(time.Millisecond)
		slow := request(t, p, "/slow")
		time.Sleep(time.Millisecond)
		idle := request(t, p, "/")
		if got := idle.response(); got != "done" {
			t.Fatalf("the response is %q", got)
		}
		second := request(t, p, "/slow")
		if _, err := idle.ReadByte(); err != io.EOF {
			t.Errorf("the idle connection: %v", err)
		}
		third := request(t, p, "/slow")
		if got := slow.response(); got != io.ErrUnexpectedEOF.Error() {
			t.Errorf("the oldest request: %q", got)
		}
		stop()
		for _, c := range []client{stream, second, third} {
			if got := c.response(); got != "done" {
				t.Errorf("at the end: %q", got)
			}
		}
		if err := <-served; err != nil {
			t.Errorf("Serve returned %v", err)
		}
		if _, err := p.Dial(t.Context(), "", ""); err != net.ErrClosed {
			t.Errorf("after the end: %v", err)
		}
	})
}

// from is a connection with the address of a client.
type from struct {
	net.Conn
	address string
}

func (f from) RemoteAddr() net.Addr {
	return net.TCPAddrFromAddrPort(netip.MustParseAddrPort(f.address))
}

// clients assigns addresses to the connections of a listener, in order.
type clients struct {
	net.Listener
	addresses chan string
}

func (c clients) Accept() (net.Conn, error) {
	conn, err := c.Listener.Accept()
	if err != nil {
		return nil, err
	}
	return from{conn, <-c.addresses}, nil
}

func TestAClientWithTooManyConnectionsLosesItsOwn(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		p, served := testsync.NewPipes(), make(chan error, 1)
		addresses := make(chan string, 1)
		ctx, stop := context.WithCancel(t.Context())
		var lost []netip.Addr
		handler := http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
			<-r.Context().Done()
			_, _ = io.WriteString(w, listener.Client(r).String())
		})
		server := listener.HTTP{Handler: handler, MaxConnections: 8, Grace: time.Second, Lost: func(_ string, client netip.Addr) { lost = append(lost, client) }}
		go func() { served <- server.Serve(ctx, clients{p, addresses}) }()
		connect := func(address string) client {
			addresses <- address
			time.Sleep(time.Millisecond)
			return request(t, p, "/")
		}
		honest := []client{connect("10.0.0.1:1000"), connect("[2001:db8:0:1::1]:1000")}
		for _, address := range []string{"[2001:db8:6:6::1]:1", "[2001:db8:6:6:a::2]:1", "[2001:db8:6:6:b::3]:1", "[2001:db8:6:6:c::4]:1", "[2001:db8:6:6:d::5]:1", "[2001:db8:6:6::6]:1"} {
			connect(address)
		}
		for range 20 {
			connect("[2001:db8:6:6::7]:1")
		}
		honest = append(honest, connect("10.0.0.1:1001"))
		stop()
		for i, want := range []string{"10.0.0.1", "2001:db8:0:1::", "10.0.0.1"} {
			if got := honest[i].response(); got != want {
				t.Errorf("the client gets %q, want %q", got, want)
			}
		}
		if err := <-served; err != nil {
			t.Errorf("Serve returned %v", err)
		}
		if want := slices.Repeat([]netip.Addr{netip.MustParseAddr("2001:db8:6:6::")}, 21); !slices.Equal(lost, want) {
			t.Errorf("requests were lost of %v, want %v", lost, want)
		}
	})
}

func TestARequestThatIsLostMayBeOfAnyClientIfNoneHasTooMany(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		p, served := testsync.NewPipes(), make(chan error, 1)
		addresses := make(chan string, 1)
		ctx, stop := context.WithCancel(t.Context())
		var lost []netip.Addr
		handler := http.HandlerFunc(func(_ http.ResponseWriter, r *http.Request) { <-r.Context().Done() })
		server := listener.HTTP{Handler: handler, MaxConnections: 4, Grace: time.Second, Lost: func(_ string, client netip.Addr) { lost = append(lost, client) }}
		go func() { served <- server.Serve(ctx, clients{p, addresses}) }()
		for i := range 5 {
			addresses <- fmt.Sprintf("10.0.0.%d:1000", i)
			request(t, p, "/")
		}
		stop()
		<-served
		if len(lost) != 1 || lost[0].IsValid() {
			t.Errorf("requests were lost of %v", lost)
		}
	})
}
