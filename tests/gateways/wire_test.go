//go:build linux

package gateways

import (
	"encoding/binary"
	"errors"
	"net/netip"
	"strconv"
	"strings"
	"sync"
	"testing"
	"time"
	"unsafe"

	"golang.org/x/sys/unix"
)

// wire observes on the loopback interface when gateways open connections to backends and send them requests, and which requests are
// repeated. It needs root. A backend that was killed or stopped cannot report this.
type wire struct {
	port  uint16
	mu    sync.Mutex // guards all below
	times map[netip.Addr][]time.Time

	sent     map[uint32]connection // where each request of the load was last sent, by its number
	repeated int                   // requests that were sent again on another connection
	refused  int                   // connections that no backend accepted
}

// connection is the gateway's port, and the backend.
type connection struct {
	port uint16
	to   netip.Addr
}

// packet has the relevant fields of a packet.
type packet struct {
	connection
	begins  bool // it opens a connection, or carries a request
	request int  // number of that request; -1 for another packet, or another protocol than HTTP/1
	refuses bool // the backend refuses the connection
}

// snapLength covers the IP and TCP headers.
const snapLength = 120

// watchWire watches the packets to a port in the network of an address, an IPv4 network of 24 bits. It returns nil without
// permission.
func watchWire(t *testing.T, network netip.Addr, port uint16) *wire {
	t.Helper()
	fd, err := unix.Socket(unix.AF_PACKET, unix.SOCK_DGRAM|unix.SOCK_CLOEXEC, int(htons(unix.ETH_P_IP)))
	if errors.Is(err, unix.EPERM) {
		return nil
	}
	if err != nil {
		t.Fatal(err)
	}
	bytes := network.As4()
	bytes[3] = 0
	inNetwork := binary.BigEndian.Uint32(bytes[:])
	filter := []unix.SockFilter{ // the destination or the source of the IP packet is in the network
		{Code: unix.BPF_LD | unix.BPF_W | unix.BPF_ABS, K: 16},
		{Code: unix.BPF_ALU | unix.BPF_AND | unix.BPF_K, K: 0xffffff00},
		{Code: unix.BPF_JMP | unix.BPF_JEQ | unix.BPF_K, K: inNetwork, Jt: 3},
		{Code: unix.BPF_LD | unix.BPF_W | unix.BPF_ABS, K: 12},
		{Code: unix.BPF_ALU | unix.BPF_AND | unix.BPF_K, K: 0xffffff00},
		{Code: unix.BPF_JMP | unix.BPF_JEQ | unix.BPF_K, K: inNetwork, Jf: 1},
		{Code: unix.BPF_RET | unix.BPF_K, K: snapLength},
		{Code: unix.BPF_RET | unix.BPF_K},
	}
	program := unix.SockFprog{Len: uint16(len(filter)), Filter: (*unix.SockFilter)(unsafe.Pointer(&filter[0]))}
	for _, err := range []error{
		unix.SetsockoptSockFprog(fd, unix.SOL_SOCKET, unix.SO_ATTACH_FILTER, &program),
		unix.SetsockoptInt(fd, unix.SOL_SOCKET, unix.SO_TIMESTAMPNS, 1),
		unix.SetsockoptInt(fd, unix.SOL_SOCKET, unix.SO_RCVBUFFORCE, 16<<20),
		unix.SetsockoptTimeval(fd, unix.SOL_SOCKET, unix.SO_RCVTIMEO, &unix.Timeval{Usec: 100_000}),
	} {
		if err != nil {
			t.Fatal(err)
		}
	}
	w := &wire{port: port, times: map[netip.Addr][]time.Time{}, sent: map[uint32]connection{}}
	end, ended := make(chan struct{}), make(chan struct{})
	go func() {
		defer close(ended)
		w.read(fd, end)
	}()
	t.Cleanup(func() { close(end); <-ended; unix.Close(fd) })
	return w
}

func htons(n uint16) uint16 { return n<<8 | n>>8 }

// read records packets until end is closed.
func (w *wire) read(fd int, end <-chan struct{}) {
	bytes, control := make([]byte, snapLength), make([]byte, 128)
	for {
		select {
		case <-end:
			return
		default:
		}
		n, m, _, from, err := unix.Recvmsg(fd, bytes, control, 0)
		if link, ok := from.(*unix.SockaddrLinklayer); err != nil || !ok || link.Pkttype == unix.PACKET_OUTGOING {
			continue // each packet of this interface is captured when it is sent, and when it is received
		}
		w.note(w.parse(bytes[:n]), stamp(control[:m]))
	}
}

// parse parses a packet between gateways and backends.
func (w *wire) parse(bytes []byte) packet {
	const minHeaders = 20 + 20
	p := packet{request: -1}
	if len(bytes) < minHeaders || bytes[9] != unix.IPPROTO_TCP {
		return p
	}
	segment := bytes[min(int(bytes[0]&0xf)*4, len(bytes)):]
	if len(segment) < 20 {
		return p
	}
	const syn, rst, ack = 0x02, 0x04, 0x10
	from, to, flags := binary.BigEndian.Uint16(segment), binary.BigEndian.Uint16(segment[2:]), segment[13]
	switch w.port {
	case to:
		p.connection = connection{from, netip.AddrFrom4([4]byte(bytes[16:20]))}
		data := segment[min(int(segment[12]>>4)*4, len(segment)):]
		p.begins, p.request = flags&syn != 0 || isRequest(data), numberOf(data)
	case from: // the response to the first packet of a connection has the sequence number 0
		p.connection = connection{to, netip.AddrFrom4([4]byte(bytes[12:16]))}
		p.refuses = flags&(rst|ack) == rst|ack && binary.BigEndian.Uint32(segment[4:]) == 0
	}
	return p
}

// isRequest reports whether data sent to a backend carries a request: any data of HTTP/1, and HEADERS frames of HTTP/2, with which
// gRPC clients also end calls in progress.
func isRequest(data []byte) bool {
	const frameHeader, headers, maxType = 9, 1, 9
	isFrame := len(data) >= frameHeader && data[0] == 0 && data[3] <= maxType
	if !isFrame {
		return len(data) > 0
	}
	for len(data) >= frameHeader {
		if data[3] == headers {
			return true
		}
		data = data[min(frameHeader+(int(data[1])<<8|int(data[2])), len(data)):]
	}
	return false
}

// numberOf returns the number of a request of the load; -1 if data does not begin with one.
func numberOf(data []byte) int {
	if query, ok := strings.CutPrefix(string(data), "GET /?"); ok {
		number, _, _ := strings.Cut(query, " ")
		if n, err := strconv.ParseUint(number, 10, 32); err == nil {
			return int(n)
		}
	}
	return -1
}

func TestRequestsAreRecognized(t *testing.T) {
	frame := func(kind, length byte) string {
		return string([]byte{0, 0, length, kind, 0, 0, 0, 0, 1}) + strings.Repeat("x", int(length))
	}
	const data, headers, reset, windowUpdate, goAway = 0, 1, 3, 8, 7
	for _, c := range []struct {
		text    string
		request bool
		number  int
	}{
		{"GET /?17 HTTP/1.1\r\nHost: x", true, 17},
		{"GET /slow HTTP/1.1\r\n", true, -1},
		{"GET /?x HTTP/1.1\r\n", true, -1},
		{"", false, -1},
		{"PRI * HTTP/2.0\r\n\r\nSM\r\n\r\n" + frame(4, 0), true, -1},
		{frame(headers, 30) + frame(data, 5), true, -1},
		{frame(windowUpdate, 4) + frame(headers, 30), true, -1},
		{frame(reset, 4), false, -1},
		{frame(windowUpdate, 4) + frame(goAway, 8), false, -1},
	} {
		if is, number := isRequest([]byte(c.text)), numberOf([]byte(c.text)); is != c.request || number != c.number {
			t.Errorf("%q: got %v, number %d; want %v, %d", c.text, is, number, c.request, c.number)
		}
	}
}

// stamp returns the kernel's timestamp of a packet.
func stamp(control []byte) time.Time {
	messages, err := unix.ParseSocketControlMessage(control)
	if err == nil {
		for _, m := range messages {
			if m.Header.Level == unix.SOL_SOCKET && m.Header.Type == unix.SCM_TIMESTAMPNS && len(m.Data) >= 16 {
				return time.Unix(int64(binary.NativeEndian.Uint64(m.Data)), int64(binary.NativeEndian.Uint64(m.Data[8:])))
			}
		}
	}
	return time.Now()
}

func (w *wire) note(p packet, at time.Time) {
	w.mu.Lock()
	defer w.mu.Unlock()
	if p.begins {
		w.times[p.to] = append(w.times[p.to], at)
	}
	if p.refuses {
		w.refused++
	}
	if p.request >= 0 {
		before, known := w.sent[uint32(p.request)]
		if known && before != p.connection {
			w.repeated++
		}
		w.sent[uint32(p.request)] = p.connection
	}
}

// again returns how many requests gateways have sent to another backend so far, and how many connections backends have refused,
// after which gateways try others.
func (w *wire) again() (repeated, refused int) {
	w.mu.Lock()
	defer w.mu.Unlock()
	return w.repeated, w.refused
}

// forget discards all observations.
func (w *wire) forget() {
	w.mu.Lock()
	defer w.mu.Unlock()
	clear(w.times)
}

// seen returns the number of packets to an address, and the time of the last one.
func (w *wire) seen(to netip.Addr) (n int, last time.Time) {
	w.mu.Lock()
	defer w.mu.Unlock()
	if n = len(w.times[to]); n > 0 {
		last = w.times[to][n-1]
	}
	return n, last
}

// firstAfter returns the time of the first packet to an address after a time; zero if there was none.
func (w *wire) firstAfter(to netip.Addr, after time.Time) time.Time {
	w.mu.Lock()
	defer w.mu.Unlock()
	for _, at := range w.times[to] {
		if at.After(after) {
			return at
		}
	}
	return time.Time{}
}
