//go:build linux

package gateways

import (
	"encoding/binary"
	"errors"
	"net/netip"
	"sync"
	"testing"
	"time"
	"unsafe"

	"golang.org/x/sys/unix"
)

// wire sees on the loopback interface when gateways begin connections to backends, and send
// them requests. It needs root. A backend that was killed, or stopped, cannot tell.
type wire struct {
	port  uint16
	mu    sync.Mutex // guards times
	times map[netip.Addr][]time.Time
}

// snapLength covers the headers of IP and TCP.
const snapLength = 120

// watchWire watches what is sent to a port in the network of an address, which is an IPv4 one
// with 24 bits. It returns nil without permission.
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
	filter := []unix.SockFilter{ // the destination of IP is in the network
		{Code: unix.BPF_LD | unix.BPF_W | unix.BPF_ABS, K: 16},
		{Code: unix.BPF_ALU | unix.BPF_AND | unix.BPF_K, K: 0xffffff00},
		{Code: unix.BPF_JMP | unix.BPF_JEQ | unix.BPF_K, K: binary.BigEndian.Uint32(bytes[:]), Jf: 1},
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
	w := &wire{port: port, times: map[netip.Addr][]time.Time{}}
	end, ended := make(chan struct{}), make(chan struct{})
	go func() {
		defer close(ended)
		w.read(fd, end)
	}()
	t.Cleanup(func() { close(end); <-ended; unix.Close(fd) })
	return w
}

func htons(n uint16) uint16 { return n<<8 | n>>8 }

// read notes packets until end is closed.
func (w *wire) read(fd int, end <-chan struct{}) {
	packet, control := make([]byte, snapLength), make([]byte, 128)
	for {
		select {
		case <-end:
			return
		default:
		}
		n, m, _, from, err := unix.Recvmsg(fd, packet, control, 0)
		if link, ok := from.(*unix.SockaddrLinklayer); err != nil || !ok || link.Pkttype == unix.PACKET_OUTGOING {
			continue // each packet of this interface is seen when it is sent, and when it is received
		}
		if to, begins := w.parse(packet[:n]); begins {
			w.note(to, stamp(control[:m]))
		}
	}
}

// parse returns where a packet goes to, and whether it begins a connection, or carries data, to
// the port.
func (w *wire) parse(packet []byte) (to netip.Addr, begins bool) {
	const minHeaders = 20 + 20
	if len(packet) < minHeaders || packet[9] != unix.IPPROTO_TCP {
		return to, false
	}
	head := int(packet[0]&0xf) * 4
	if len(packet) < head+20 || binary.BigEndian.Uint16(packet[head+2:]) != w.port {
		return to, false
	}
	const syn = 0x02
	data := int(binary.BigEndian.Uint16(packet[2:])) - head - int(packet[head+12]>>4)*4
	to = netip.AddrFrom4([4]byte(packet[16:20]))
	return to, packet[head+13]&syn != 0 || data > 0
}

// stamp returns the kernel's time of a packet.
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

func (w *wire) note(to netip.Addr, at time.Time) {
	w.mu.Lock()
	defer w.mu.Unlock()
	w.times[to] = append(w.times[to], at)
}

// forget forgets what was seen.
func (w *wire) forget() {
	w.mu.Lock()
	defer w.mu.Unlock()
	clear(w.times)
}

// seen returns how many packets went to an address, and when the last one did.
func (w *wire) seen(to netip.Addr) (n int, last time.Time) {
	w.mu.Lock()
	defer w.mu.Unlock()
	if n = len(w.times[to]); n > 0 {
		last = w.times[to][n-1]
	}
	return n, last
}

// firstAfter returns when the first packet went to an address after a time; zero if none did.
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
