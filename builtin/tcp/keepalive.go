package tcpprobe

import (
	"context"
	"net"
	"strconv"
	"sync"
	"time"

	"github.com/sonde-probe/sonde/internal/dial"
	"github.com/sonde-probe/sonde/probe"
)

// KeepAlive is the keepalive block: one connection is opened and kept, and an
// attempt asks whether it still stands. The system asks the peer's system by
// itself (SO_KEEPALIVE). The zero value of a field stands for its default.
type KeepAlive struct {
	// Idle is how long nothing has to come before the system asks. Default 60s;
	// whole seconds, 1s to 32767s.
	Idle time.Duration `hcl:"idle,optional"`

	// Interval is the time between two questions that are not answered. Default
	// 5s; whole seconds, 1s to 32767s.
	Interval time.Duration `hcl:"interval,optional"`

	// Count is how many questions without an answer end the connection. Default
	// 3; 1 to 127.
	Count int `hcl:"count,optional"`
}

// Defaults and bounds of a KeepAlive. The bounds are Linux's own (MAX_TCP_KEEPIDLE
// and its neighbours in net/tcp.h).
const (
	DefaultKeepAliveIdle     = 60 * time.Second
	DefaultKeepAliveInterval = 5 * time.Second
	DefaultKeepAliveCount    = 3

	maxKeepAlive      = 32767 * time.Second
	maxKeepAliveCount = 127
)

// check finds what is out of range.
func (k KeepAlive) check() error {
	for _, d := range []struct {
		name  string
		value time.Duration
	}{{"keepalive.idle", k.Idle}, {"keepalive.interval", k.Interval}} {
		if d.value != 0 && (d.value < time.Second || d.value > maxKeepAlive || d.value%time.Second != 0) {
			return field(d.name, "is %v, it must be whole seconds from 1s to %v", d.value, maxKeepAlive)
		}
	}
	if k.Count < 0 || k.Count > maxKeepAliveCount {
		return field("keepalive.count", "is %d, it must be from 1 to %d", k.Count, maxKeepAliveCount)
	}
	return nil
}

func (k KeepAlive) config() net.KeepAliveConfig {
	c := net.KeepAliveConfig{
		Enable: true,
		Idle:   DefaultKeepAliveIdle, Interval: DefaultKeepAliveInterval, Count: DefaultKeepAliveCount,
	}
	if k.Idle != 0 {
		c.Idle = k.Idle
	}
	if k.Interval != 0 {
		c.Interval = k.Interval
	}
	if k.Count != 0 {
		c.Count = k.Count
	}
	return c
}

// ask makes an attempt by the connection that is kept, or by a new one.
func (h *Handler) ask(ctx context.Context, target, host string, port uint16, took *probe.Timings, wake func()) probe.Result {
	place := net.JoinHostPort(host, strconv.Itoa(int(port)))
	if result, kept := h.keeper.ask(target, place); kept {
		return result
	}
	conn, result := h.open(ctx, host, port, took)
	if conn == nil {
		return result
	}
	if result.Outcome != probe.Success || ctx.Err() != nil { // then conn's deadline has passed too
		conn.Close()
		return result
	}
	if err := h.keeper.keep(target, place, conn, wake); err != nil {
		conn.Close()
		return dial.Result(dial.Classify(ctx, dial.Transferring, err))
	}
	return result
}

// keeper holds the connections of a handler, one for each target.
type keeper struct {
	config net.KeepAliveConfig
	watch  sync.WaitGroup

	mu     sync.Mutex
	kept   map[string]*kept // by the target's name
	closed bool
}

// kept is a connection that has outlived its attempt.
type kept struct {
	conn  net.Conn
	place string // the host and port that it leads to
	since time.Time
	wake  func()

	over bool  // it has ended, with err; guarded by keeper.mu
	err  error // why
}

func newKeeper(k KeepAlive) *keeper {
	return &keeper{config: k.config(), kept: map[string]*kept{}}
}

// ask returns what there is to say of a target's connection, and false where
// there is none. One that has ended is told once, and then forgotten.
func (k *keeper) ask(target, place string) (probe.Result, bool) {
	k.mu.Lock()
	defer k.mu.Unlock()
	c := k.kept[target]
	switch {
	case c == nil:
		return probe.Result{}, false
	case c.over:
		delete(k.kept, target)
		broke := dial.Classify(context.Background(), dial.Transferring, c.err)
		return probe.Fail(broke.Reason, "the connection stood for %v, then: %v", time.Since(c.since).Round(time.Millisecond), broke), true
	case c.place != place:
		k.drop(target, c)
		return probe.Result{}, false
	}
	return probe.Succeed("connected for " + time.Since(c.since).Round(time.Second).String()), true
}

// drop closes a connection that nobody asks for any more.
func (k *keeper) drop(target string, c *kept) {
	delete(k.kept, target)
	_ = c.conn.Close() // there is nothing to be done about an error
}

// keep takes a connection over, until it ends or close is called.
func (k *keeper) keep(target, place string, conn net.Conn, wake func()) error {
	if tcp, ok := under(conn).(*net.TCPConn); ok {
		if err := tcp.SetKeepAliveConfig(k.config); err != nil {
			return err
		}
	}
	k.mu.Lock()
	defer k.mu.Unlock()
	if k.closed || k.kept[target] != nil {
		return conn.Close() // the probe is gone, or another attempt was faster
	}
	c := &kept{conn: conn, place: place, since: time.Now(), wake: wake}
	k.kept[target] = c
	k.watch.Go(func() { k.follow(target, c) })
	return nil
}

// readPause bounds how much of a processor a peer can take that sends and sends.
const readPause = 10 * time.Millisecond

// follow waits for the end of a connection. What comes over it is thrown away.
func (k *keeper) follow(target string, c *kept) {
	b := make([]byte, 4<<10)
	_, err := c.conn.Read(b)
	for err == nil {
		time.Sleep(readPause)
		_, err = c.conn.Read(b)
	}
	_ = c.conn.Close()
	k.mu.Lock()
	wanted := k.kept[target] == c
	c.over, c.err = true, err
	k.mu.Unlock()
	if wanted {
		c.wake()
	}
}

// close ends all connections and returns when nobody follows them.
func (k *keeper) close() {
	k.mu.Lock()
	k.closed = true
	for target, c := range k.kept {
		k.drop(target, c)
	}
	k.mu.Unlock()
	k.watch.Wait()
}

// under returns the connection that carries another, or conn itself.
func under(conn net.Conn) net.Conn {
	if t, ok := conn.(interface{ NetConn() net.Conn }); ok {
		return t.NetConn()
	}
	return conn
}
