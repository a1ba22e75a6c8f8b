//go:build linux

package main

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"syscall"
	"time"
)

// healthy is the number of healthy probes in row overload.
const healthy = 100

// overloaded measures the lateness of healthy probes while very many others time out concurrently, and the memory that those use.
func (b *bench) overloaded(ctx context.Context) ([]line, error) {
	hole, err := newBlackHole()
	if err != nil {
		return nil, err
	}
	defer hole.close()
	flags := []string{
		"-probes", fmt.Sprint(healthy), "-period", b.period.String(), "-timeout", b.timeout.String(),
		"-black", fmt.Sprint(b.overload), "-black-port", fmt.Sprint(hole.port),
	}
	empty, err := b.idle(ctx, flags...)
	if err != nil {
		return nil, err
	}
	var begin counts
	c, err := b.probe(ctx, &begin, flags...)
	if err != nil {
		return nil, err
	}
	defer c.end()
	lines, end, err := b.healthyLateness(ctx, c)
	if err != nil {
		return nil, err
	}
	most, err := peak(c.pid())
	grown := line{
		What: "of these: memory beyond that of an idle engine", Unit: "MB", Measured: (most - empty) / 1e6,
		Note: fmt.Sprintf("peak, %.1f KB for each attempt in flight", (most-empty)/1e3/float64(max(end.InFlight, 1))),
	}
	return append(lines, grown), err
}

// healthyLateness measures the lateness of the healthy probes of an overloaded engine, together with that of a process that only
// sleeps.
func (b *bench) healthyLateness(ctx context.Context, c *child) (lines []line, end counts, err error) {
	sleeper, err := b.sleeper(ctx)
	if err != nil {
		return nil, end, err
	}
	defer sleeper.end()
	begin, err := c.after(ctx, 2*b.warmup)
	if err != nil {
		return nil, end, err
	}
	late := line{What: fmt.Sprintf("%d probes time out: p99 of healthy ones' lateness", b.overload), Unit: "ms", Goal: 50}
	sleeps := sleepers()
	made, worst := 0, time.Duration(0)
	for range b.rounds {
		if end, err = c.after(ctx, b.window); err == nil {
			err = sleeper.sleeps(&sleeps)
		}
		if err != nil {
			return nil, end, err
		}
		late.Rounds = append(late.Rounds, end.P99.Seconds()*1e3)
		made, worst = made+end.Well, max(worst, end.Worst)
	}
	late.Measured = median(late.Rounds)
	late.Note = fmt.Sprintf("worst %v; %s", worst.Round(time.Millisecond), b.pressure(begin, end))
	switch {
	case end.Failures == begin.Failures:
		err = errors.New("no attempt has timed out")
	case made == 0:
		err = errors.New("no healthy probe was due")
	}
	return []line{late, sleeps}, end, err
}

// pressure describes the load of an engine.
func (b *bench) pressure(begin, end counts) string {
	took := (time.Duration(b.rounds) * b.window).Seconds()
	due := healthy/b.period.Seconds() + float64(b.overload)/(10*b.timeout).Seconds()
	return fmt.Sprintf("%d in flight and %d queued at the end; %.0f attempts/s made, %.0f due",
		end.InFlight, end.Queued, float64(end.Attempts-begin.Attempts)/took, due)
}

// blackHole is a port that neither accepts nor refuses connections: a listener that
// never accepts. Once its backlog is full, Linux drops the SYN of any further
// connection.
type blackHole struct {
	port    int
	sockets []int // the listener, and the clients in its backlog
}

// newBlackHole returns a black hole on all addresses of this machine.
func newBlackHole() (*blackHole, error) {
	listener, port, err := listen(0)
	if err != nil {
		return nil, err
	}
	h := &blackHole{port: port, sockets: []int{listener}}
	for range 16 { // a backlog of 0 lets one client wait; the actual number depends on the kernel
		taken, err := h.knock()
		if err != nil {
			h.close()
			return nil, err
		}
		if !taken {
			return h, nil
		}
	}
	h.close()
	return nil, errors.New("the kernel accepts connections beyond a listener's backlog")
}

// knock opens a connection, and reports whether it was accepted. Over loopback, that is known when connect returns.
func (h *blackHole) knock() (taken bool, err error) {
	fd, err := syscall.Socket(syscall.AF_INET, syscall.SOCK_STREAM|syscall.SOCK_NONBLOCK|syscall.SOCK_CLOEXEC, 0)
	if err != nil {
		return false, fmt.Errorf("socket: %w", err)
	}
	h.sockets = append(h.sockets, fd)
	err = syscall.Connect(fd, &syscall.SockaddrInet4{Port: h.port, Addr: [4]byte{127, 0, 0, 1}})
	if err != nil && !errors.Is(err, syscall.EINPROGRESS) {
		return false, fmt.Errorf("connect: %w", err)
	}
	_, err = syscall.Getpeername(fd)
	return err == nil, nil
}

func (h *blackHole) close() {
	for _, fd := range slices.Backward(h.sockets) {
		syscall.Close(fd)
	}
}
