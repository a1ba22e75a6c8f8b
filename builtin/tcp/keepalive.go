package tcpprobe

import (
	"cmp"
	"net"
	"time"
)

// KeepAlive is the keepalive block: the handler opens one connection and keeps it, and
// an attempt succeeds while it is open. The system sends TCP keepalive packets
// (SO_KEEPALIVE). The zero value of a field means its default.
//
// The reason of a failure tells why the connection ended: tcp.closed if the peer closed
// it, tcp.timeout if the peer has crashed, tcp.reset if the peer was started again and does
// not know the connection, tcp.unreachable if there is no way to the peer.
type KeepAlive struct {
	Idle     time.Duration `hcl:"idle,optional,nonzero" doc:"how long the connection is idle before the system sends a keepalive packet; whole seconds" default:"60s" min:"1s" max:"32767s"`
	Interval time.Duration `hcl:"interval,optional,nonzero" doc:"time between two packets without a response; whole seconds" default:"5s" min:"1s" max:"32767s"`
	Count    int           `hcl:"count,optional,nonzero" doc:"packets without a response that end the connection" default:"3" min:"1" max:"127"`
}

// The defaults of a KeepAlive. The bounds are Linux's (MAX_TCP_KEEPIDLE and others in
// net/tcp.h).
const (
	defaultIdle     = 60 * time.Second
	defaultInterval = 5 * time.Second
	defaultCount    = 3
)

func (k KeepAlive) config() net.KeepAliveConfig {
	return net.KeepAliveConfig{
		Enable:   true,
		Idle:     cmp.Or(k.Idle, defaultIdle),
		Interval: cmp.Or(k.Interval, defaultInterval),
		Count:    cmp.Or(k.Count, defaultCount),
	}
}
