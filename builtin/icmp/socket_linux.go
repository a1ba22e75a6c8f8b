package icmpprobe

import (
	"context"
	"crypto/rand"
	"encoding/binary"
	"errors"
	"fmt"
	"net"
	"net/netip"
	"os"
	"strconv"
	"syscall"
	"time"

	"github.com/sonde-probe/sonde/internal/dial"
	"github.com/sonde-probe/sonde/internal/nonblock"
	"github.com/sonde-probe/sonde/probe"
)

// Linux socket options that package syscall lacks, or has under several names.
const (
	optionFilter4 = 1 // ICMP_FILTER, at the level of raw sockets
	optionFilter6 = 1 // ICMPV6_FILTER, at the level of ICMPv6
	levelRaw      = 255

	dontFragmentAlways = syscall.IP_PMTUDISC_DO // IPV6_PMTUDISC_DO is the same number
	dontFragmentNever  = syscall.IP_PMTUDISC_DONT
)

// maxSends is how many times a request is sent that must be fragmented. Each network on the path may require smaller packets.
const maxSends = 4

// socket is an ICMP socket that is connected to one address.
type socket struct {
	file *os.File
	conn syscall.RawConn
	raw  bool // a raw socket, which receives packets for others as well; otherwise a ping socket
	to   netip.Addr
	echo echo
	in   []byte
}

var errPermission = errors.New(`this system does not let the engine send ICMP echo requests: set the sysctl net.ipv4.ping_group_range = "0 2147483647", or AmbientCapabilities=CAP_NET_RAW in the systemd unit of the engine`)

// permission returns errPermission if no socket can be opened for lack of permission, otherwise nil.
func permission() error {
	fd, _, err := openSocket(nil, syscall.AF_INET, syscall.IPPROTO_ICMP, false)
	if err == nil {
		_ = syscall.Close(fd)
	}
	if errors.Is(err, errPermission) {
		return errPermission
	}
	return nil
}

// openSocket opens a ping socket or, if that is not permitted, a raw socket. The network may be nil.
func openSocket(n *probe.Network, domain, protocol int, onlyRaw bool) (fd int, raw bool, err error) {
	const flags = syscall.SOCK_NONBLOCK | syscall.SOCK_CLOEXEC
	if !onlyRaw {
		fd, err = openIn(n, domain, syscall.SOCK_DGRAM|flags, protocol)
		if !isDenied(err) && !errors.Is(err, syscall.EPROTONOSUPPORT) { // a kernel without ping sockets
			return fd, false, os.NewSyscallError("socket", err)
		}
	}
	fd, err = openIn(n, domain, syscall.SOCK_RAW|flags, protocol)
	if isDenied(err) {
		return 0, true, &dial.Error{Outcome: probe.Unknown, Reason: probe.ReasonPermission, Err: errPermission}
	}
	return fd, true, os.NewSyscallError("socket", err)
}

// openIn opens a socket in a target's network, which may be nil.
func openIn(n *probe.Network, domain, kind, protocol int) (fd int, err error) {
	if n == nil {
		return syscall.Socket(domain, kind, protocol)
	}
	fd, err = nonblock.OpenIn(n, domain, kind, protocol)
	if lacks := (*nonblock.NetworkError)(nil); errors.As(err, &lacks) {
		return fd, dial.NetworkError(err)
	}
	return fd, err
}

func isDenied(err error) bool {
	return errors.Is(err, syscall.EACCES) || errors.Is(err, syscall.EPERM)
}

// exchange sends a request to an address, waits for the reply, and returns its hop limit.
func (h *handler) exchange(ctx context.Context, to netip.Addr, took *probe.Timings) (hopLimit uint8, err error) {
	began := time.Now()
	s, err := h.open(dial.NetworkOf(ctx), to)
	if err != nil {
		return 0, err
	}
	defer s.file.Close()
	defer dial.Bind(ctx, s.file)()
	sent := time.Now()
	took.Connect += sent.Sub(began)
	if hopLimit, err = s.roundTrip(h.dontFragment); err == nil {
		took.FirstByte = time.Since(sent)
	}
	return hopLimit, err
}

// open opens a socket that is connected to an address, in a target's network, which may be nil.
func (h *handler) open(n *probe.Network, to netip.Addr) (*socket, error) {
	domain, protocol := syscall.AF_INET, syscall.IPPROTO_ICMP
	if to.Is6() {
		domain, protocol = syscall.AF_INET6, syscall.IPPROTO_ICMPV6
	}
	fd, raw, err := openSocket(n, domain, protocol, h.onlyRaw)
	if err != nil {
		return nil, err
	}
	s := &socket{file: os.NewFile(uintptr(fd), "icmp"), raw: raw, to: to.WithZone("")}
	if err := h.prepare(s, fd, h.dialer.SourceIn(n), to); err != nil {
		s.file.Close()
		return nil, err
	}
	return s, nil
}

// prepare sets the options of a socket, connects it, and creates its request.
func (h *handler) prepare(s *socket, fd int, source, to netip.Addr) (err error) {
	if s.conn, err = s.file.SyscallConn(); err != nil {
		return err
	}
	if err := s.file.SetDeadline(time.Time{}); err != nil { // the runtime cannot poll the socket
		return &dial.Error{Outcome: probe.Unknown, Reason: probe.ReasonResources, Err: fmt.Errorf("waiting for the socket: %w", err)}
	}
	if err := h.setOptions(fd, s.raw, to.Is6()); err != nil {
		return os.NewSyscallError("setsockopt", err)
	}
	if source.IsValid() {
		address, err := sockaddr(source)
		if err != nil {
			return err
		}
		if err := syscall.Bind(fd, address); err != nil {
			return os.NewSyscallError("bind", err)
		}
	}
	address, err := sockaddr(to)
	if err != nil {
		return err
	}
	if err := syscall.Connect(fd, address); err != nil {
		return os.NewSyscallError("connect", err)
	}
	return s.makeRequest(fd, h.payloadSize)
}

// makeRequest creates the request and the buffer for its reply. The kernel has chosen the identifier of a ping socket.
func (s *socket) makeRequest(fd, size int) error {
	random := make([]byte, 4+size)
	_, _ = rand.Read(random) // never fails
	s.echo = echo{v6: s.to.Is6(), id: binary.BigEndian.Uint16(random), seq: binary.BigEndian.Uint16(random[2:]), payload: random[4:]}
	s.in = make([]byte, maxIPHeader+headerSize+size+1)
	if s.raw {
		return nil
	}
	own, err := syscall.Getsockname(fd)
	if err != nil {
		return os.NewSyscallError("getsockname", err)
	}
	switch own := own.(type) {
	case *syscall.SockaddrInet4:
		s.echo.id = uint16(own.Port)
	case *syscall.SockaddrInet6:
		s.echo.id = uint16(own.Port)
	}
	return nil
}

const maxIPHeader = 60 // of IPv4, with options

func (h *handler) setOptions(fd int, raw, v6 bool) error {
	level, receiveErrors, receiveTTL, ttl, discover := syscall.IPPROTO_IP, syscall.IP_RECVERR, syscall.IP_RECVTTL, syscall.IP_TTL, syscall.IP_MTU_DISCOVER
	if v6 {
		level, receiveErrors, receiveTTL, ttl, discover = syscall.IPPROTO_IPV6, syscall.IPV6_RECVERR, syscall.IPV6_RECVHOPLIMIT, syscall.IPV6_UNICAST_HOPS, syscall.IPV6_MTU_DISCOVER
	}
	fragments := dontFragmentNever
	if h.dontFragment {
		fragments = dontFragmentAlways
	}
	for _, o := range []struct{ name, value int }{{receiveErrors, 1}, {receiveTTL, 1}, {ttl, h.ttl}, {discover, fragments}} {
		if o.name == ttl && h.ttl == 0 {
			continue
		}
		if err := syscall.SetsockoptInt(fd, level, o.name, o.value); err != nil {
			return err
		}
	}
	if !raw {
		return nil
	}
	if v6 {
		var blocked [32]byte // one bit per type
		for i := range blocked {
			blocked[i] = 0xff
		}
		blocked[typeReply6/8] &^= 1 << (typeReply6 % 8)
		return syscall.SetsockoptString(fd, syscall.IPPROTO_ICMPV6, optionFilter6, string(blocked[:]))
	}
	const allButReplies = -1 &^ (1 << typeReply4)
	return syscall.SetsockoptInt(fd, levelRaw, optionFilter4, allButReplies)
}

// sockaddr returns an address in the form that system calls accept.
func sockaddr(ip netip.Addr) (syscall.Sockaddr, error) {
	if ip.Is4() {
		return &syscall.SockaddrInet4{Addr: ip.As4()}, nil
	}
	address := &syscall.SockaddrInet6{Addr: ip.As16()}
	if zone := ip.Zone(); zone != "" {
		if n, err := strconv.ParseUint(zone, 10, 32); err == nil {
			address.ZoneId = uint32(n)
			return address, nil
		}
		found, err := net.InterfaceByName(zone)
		if err != nil {
			return nil, &dial.Error{Outcome: probe.Unknown, Reason: probe.ReasonICMPSource, Err: fmt.Errorf("%v: %w", ip, err)}
		}
		address.ZoneId = uint32(found.Index)
	}
	return address, nil
}

// roundTrip sends the request, waits for its reply, and returns the hop limit of the reply. An error from the kernel's error queue
// is a *dial.Error.
func (s *socket) roundTrip(dontFragment bool) (hopLimit uint8, err error) {
	packet := s.echo.packet()
	for range maxSends {
		if err = s.send(packet); err != nil {
			return 0, err
		}
		var remote *remoteError
		if hopLimit, remote, err = s.await(); remote == nil {
			return hopLimit, err
		}
		if err = remote.classified(); dontFragment || !remote.isTooBig() {
			return 0, err
		}
		// The kernel has learned the maximum packet size from the error, and sends fragments from now on.
	}
	return 0, err
}

func (s *socket) send(packet []byte) error {
	var failed error
	if err := s.conn.Control(func(fd uintptr) { _, failed = syscall.Write(int(fd), packet) }); err != nil {
		return err
	}
	return os.NewSyscallError("sendmsg", failed)
}

// await waits for the reply, or for an ICMP error about the request. It discards all other packets: those for other programs, and
// forged ones.
func (s *socket) await() (hopLimit uint8, remote *remoteError, err error) {
	for {
		var m message
		var failed error
		err := s.conn.Read(func(fd uintptr) bool {
			m, failed = receive(int(fd), s.in, 0)
			return failed != syscall.EAGAIN
		})
		switch {
		case err != nil:
			return 0, nil, err
		case failed == syscall.EINTR:
		case failed != nil:
			if remote, err = s.queued(failed); remote != nil || err != nil {
				return 0, remote, err
			}
		case m.from == s.to && s.echo.isReply(s.payloadOf(m.data)):
			return m.hopLimit, nil, nil
		}
	}
}

// payloadOf returns the ICMP message in a packet that the socket has received.
func (s *socket) payloadOf(packet []byte) []byte {
	if s.raw && !s.echo.v6 {
		return withoutHeader(packet)
	}
	return packet
}

// queued returns the ICMP error about the request that the kernel has queued, after receiving has failed with an error. Raw sockets
// also get errors about requests of others, which are ignored. If the queue is empty, the error is one of this machine.
func (s *socket) queued(failed error) (*remoteError, error) {
	for isOfOthers := false; ; isOfOthers = true {
		var m message
		var err error
		if closed := s.conn.Control(func(fd uintptr) { m, err = receive(int(fd), s.in, syscall.MSG_ERRQUEUE) }); closed != nil {
			return nil, closed
		}
		switch {
		case err == syscall.EAGAIN && isOfOthers:
			return nil, nil
		case err == syscall.EAGAIN:
			return nil, os.NewSyscallError("recvmsg", failed)
		case err != nil:
			return nil, os.NewSyscallError("recvmsg", err)
		case m.remote != nil && m.from == s.to && s.echo.isQuoted(m.data):
			return m.remote, nil
		}
	}
}

// message is a received packet, or the beginning of a sent packet from the error queue.
type message struct {
	data     []byte
	from     netip.Addr // without a zone; from the error queue: the destination of the packet
	hopLimit uint8
	remote   *remoteError // only from the error queue
}

func receive(fd int, in []byte, flags int) (m message, err error) {
	var control [256]byte
	n, controlled, _, from, err := syscall.Recvmsg(fd, in, control[:], flags)
	if err != nil {
		return message{}, err
	}
	m.data = in[:n]
	switch from := from.(type) {
	case *syscall.SockaddrInet4:
		m.from = netip.AddrFrom4(from.Addr)
	case *syscall.SockaddrInet6:
		m.from = netip.AddrFrom16(from.Addr)
	}
	parts, err := syscall.ParseSocketControlMessage(control[:controlled])
	if err != nil {
		return m, nil // leaves out the control data, which a reply does not need
	}
	for _, p := range parts {
		switch level, kind := p.Header.Level, p.Header.Type; {
		case level == syscall.IPPROTO_IP && kind == syscall.IP_TTL && len(p.Data) >= 4, level == syscall.IPPROTO_IPV6 && kind == syscall.IPV6_HOPLIMIT && len(p.Data) >= 4:
			m.hopLimit = uint8(binary.NativeEndian.Uint32(p.Data))
		case level == syscall.IPPROTO_IP && kind == syscall.IP_RECVERR, level == syscall.IPPROTO_IPV6 && kind == syscall.IPV6_RECVERR:
			m.remote = parseExtended(p.Data)
		}
	}
	return m, nil
}

// parseExtended parses a sock_extended_err followed by the address of the host that sent the error (ip(7)). It returns nil for
// errors other than ICMP.
func parseExtended(b []byte) *remoteError {
	const (
		size                  = 16 // of the struct, before the address
		originICMP, origin6   = 2, 3
		at4, at6, end4, end6  = size + 4, size + 8, size + 8, size + 24 // offsets of the address
		originAt, kindAt, cod = 4, 5, 6
	)
	if len(b) < size || b[originAt] != originICMP && b[originAt] != origin6 {
		return nil
	}
	r := &remoteError{v6: b[originAt] == origin6, kind: b[kindAt], code: b[cod]}
	switch {
	case len(b) < size+2:
	case binary.NativeEndian.Uint16(b[size:]) == syscall.AF_INET && len(b) >= end4:
		r.from = netip.AddrFrom4([4]byte(b[at4:end4])).String()
	case binary.NativeEndian.Uint16(b[size:]) == syscall.AF_INET6 && len(b) >= end6:
		r.from = netip.AddrFrom16([16]byte(b[at6:end6])).String()
	}
	return r
}
