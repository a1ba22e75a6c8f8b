package beatprobe

import (
	"context"
	"errors"
	"fmt"
	"net"
	"sync"
	"time"
)

// readBuffer is the requested size of the receive buffer, in bytes. The system may grant less (net.core.rmem_max).
const readBuffer = 8 << 20

// retryPause is the pause after a socket error.
const retryPause = 100 * time.Millisecond

// Listen opens a socket for beats as datagrams. The caller closes it or passes it to Receive.
func (r *Registry) Listen(ctx context.Context, address string) (*net.UDPConn, error) {
	conn, err := new(net.ListenConfig).ListenPacket(ctx, "udp", address)
	if err != nil {
		return nil, fmt.Errorf("listen for beats on %s: %w", address, err)
	}
	udp := conn.(*net.UDPConn)
	_ = udp.SetReadBuffer(readBuffer) // the system's default is enough for a few hundred at once
	return udp, nil
}

// Receive reads datagrams from a socket until ctx is done, and closes the socket.
func (r *Registry) Receive(ctx context.Context, socket *net.UDPConn) {
	r.startUDP()
	ctx, stop := context.WithCancel(ctx)
	var following sync.WaitGroup
	defer following.Wait()
	defer stop()
	following.Go(func() {
		r.followDrops(ctx, socket)
		socket.Close()
	})
	buffer := make([]byte, maxDatagram+1)
	var rejected allowance
	for {
		var pause time.Duration
		n, _, err := socket.ReadFromUDPAddrPort(buffer)
		switch {
		case err == nil:
			if r.receive(buffer[:n]) {
				pause = rejected.spend(time.Now())
			}
			if pause > 0 && !countsDrops {
				r.interruptedUDP("more rejected datagrams arrived than are read")
			}
		case ctx.Err() != nil || errors.Is(err, net.ErrClosed):
			return
		default:
			r.interruptedUDP(err.Error())
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

// followDrops updates the number of datagrams that the system has dropped at a socket, until ctx is done.
func (r *Registry) followDrops(ctx context.Context, socket *net.UDPConn) {
	raw, err := socket.SyscallConn()
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
				r.setDropped(n)
			}
		}
	}
}
