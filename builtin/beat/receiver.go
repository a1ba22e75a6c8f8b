package beatprobe

import (
	"context"
	"errors"
	"fmt"
	"net"
	"sync"
	"time"
)

// readBuffer is the size of the receive buffer that is asked for: so many bytes may come at once.
// The system may give less (net.core.rmem_max).
const readBuffer = 8 << 20

// retryPause is the time after an error of the socket.
const retryPause = 100 * time.Millisecond

// Receiver receives beats as datagrams.
type Receiver struct {
	conn     *net.UDPConn
	registry *Registry
}

// Listen opens the socket for beats of a registry's targets. Close the Receiver, or call Run.
func (r *Registry) Listen(ctx context.Context, address string) (*Receiver, error) {
	conn, err := new(net.ListenConfig).ListenPacket(ctx, "udp", address)
	if err != nil {
		return nil, fmt.Errorf("listen for beats on %s: %w", address, err)
	}
	udp := conn.(*net.UDPConn)
	_ = udp.SetReadBuffer(readBuffer) // the system's default is enough for a few hundred at once
	return &Receiver{udp, r}, nil
}

// Addr returns the address, with the port that the system chose.
func (rc *Receiver) Addr() net.Addr { return rc.conn.LocalAddr() }

// Close closes the socket.
func (rc *Receiver) Close() error { return rc.conn.Close() }

// Run receives datagrams until ctx is done, and closes the socket.
func (rc *Receiver) Run(ctx context.Context) {
	rc.registry.startUDP()
	ctx, stop := context.WithCancel(ctx)
	var following sync.WaitGroup
	defer following.Wait()
	defer stop()
	following.Go(func() {
		rc.followDrops(ctx)
		rc.conn.Close()
	})
	buffer := make([]byte, maxDatagram+1)
	var rejected allowance
	for {
		var pause time.Duration
		n, _, err := rc.conn.ReadFromUDPAddrPort(buffer)
		switch {
		case err == nil:
			if rc.registry.receive(buffer[:n]) {
				pause = rejected.spend(time.Now())
			}
			if pause > 0 && !countsDrops {
				rc.registry.interruptedUDP("more datagrams that change nothing have come than are read")
			}
		case ctx.Err() != nil || errors.Is(err, net.ErrClosed):
			return
		default:
			rc.registry.interruptedUDP(err.Error())
			pause = retryPause
		}
		if pause > 0 {
			select {
			case <-time.After(pause):
			case <-ctx.Done():
			}
		}
	}
}

// followDrops looks how many datagrams the system has dropped, until ctx is done.
func (rc *Receiver) followDrops(ctx context.Context) {
	raw, err := rc.conn.SyscallConn()
	ticker := time.NewTicker(lookPeriod)
	defer ticker.Stop()
	for {
		select {
		case <-ticker.C:
		case <-ctx.Done():
			return
		}
		if n, ok := uint64(0), false; err == nil {
			if raw.Control(func(fd uintptr) { n, ok = drops(fd) }) == nil && ok {
				rc.registry.setDropped(n)
			}
		}
	}
}
