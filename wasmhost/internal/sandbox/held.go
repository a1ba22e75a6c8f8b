package sandbox

import (
	"net"
	"time"

	"github.com/sonde-probe/sonde/internal/nonblock"
	"github.com/sonde-probe/sonde/wasmhost/abi"
)

// hold keeps a connection for later attempts of the probe.
func (n *network) hold(a args) int64 {
	key, errno := n.memory.key(a, 1)
	if errno != abi.OK {
		return i32(0, errno)
	}
	if n.input.State == nil {
		return i32(0, n.failf(abi.ENOTCAPABLE, "connections can be held in an attempt only"))
	}
	fd := a.i32(0)
	s, ok := n.open.get(fd)
	if !ok {
		return i32(0, abi.EBADF)
	}
	n.cpu.releaseSlot()
	if !n.open.separate(s) {
		return i32(0, n.failMemory())
	}
	n.open.remove(fd)
	s.stopReader()
	_ = s.conn.SetDeadline(time.Time{}) // an error means that the connection is closed, which its next use detects
	if tcp, ok := nonblock.Transport(s.conn).(*net.TCPConn); ok && n.config.KeepAlive.Enable && !s.keepsAlive {
		s.keepsAlive = tcp.SetKeepAliveConfig(n.config.KeepAlive) == nil // as above
	}
	if wake := n.input.State.limitWakes(n.input.Wake); wake != nil {
		if s.watch == nil {
			s.watch = n.shared.watcher.Watch(s.conn)
		}
		s.watch.Arm(wake)
	}
	if errno := n.input.State.hold(key, s); errno != abi.OK {
		s.watch.Disarm()
		n.open.addAs(fd, s)
		return i32(0, n.reachLimit("held", errno))
	}
	return 0
}

// held gives the guest a connection that the probe holds.
func (n *network) held(a args) int64 {
	n.used = true
	key, errno := n.memory.key(a, 0)
	if errno != abi.OK {
		return i32(0, errno)
	}
	if n.input.State == nil {
		return i32(0, abi.ENOENT)
	}
	if len(n.open.sockets) >= n.config.Limits.Connections {
		return i32(0, n.reachLimit("connections", abi.EMFILE))
	}
	s, ok := n.input.State.popConn(key)
	if !ok {
		return i32(0, abi.ENOENT)
	}
	s.watch.Disarm()
	s.nonblock = a.u32(2)&abi.FlagNonblock != 0
	s.readBy, s.writeBy = time.Time{}, time.Time{}
	return i32(n.open.add(s), abi.OK)
}
