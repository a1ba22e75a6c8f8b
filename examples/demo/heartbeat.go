package main

import (
	"bufio"
	"context"
	"fmt"
	"net"
	"strings"
	"sync"
	"time"
)

// Limits of a heartbeat connection.
const (
	maxLine     = 64 // bytes
	idleTimeout = time.Minute
)

// listenForHeartbeats serves heartbeats on an address, unless it is empty, until ctx is done or
// stop is called. stop waits until all connections are closed.
func (s *service) listenForHeartbeats(ctx context.Context, address string) (stop func(), err error) {
	if address == "" {
		return func() {}, nil
	}
	l, err := net.Listen("tcp", address)
	if err != nil {
		return nil, err
	}
	ctx, cancel := context.WithCancel(ctx)
	var serving sync.WaitGroup
	serving.Go(func() { s.serveHeartbeats(ctx, l) })
	return func() { cancel(); serving.Wait() }, nil
}

// serveHeartbeats replies to each line "PING x" with "PONG x", on any number of connections, until
// ctx is done. While the service hangs it does not reply.
func (s *service) serveHeartbeats(ctx context.Context, l net.Listener) {
	var connections sync.WaitGroup
	defer connections.Wait()
	stop := context.AfterFunc(ctx, func() { l.Close() })
	defer stop()
	for {
		c, err := l.Accept()
		if err != nil {
			return
		}
		connections.Go(func() { s.answerHeartbeats(ctx, c) })
	}
}

func (s *service) answerHeartbeats(ctx context.Context, c net.Conn) {
	defer c.Close()
	stop := context.AfterFunc(ctx, func() { c.Close() })
	defer stop()
	lines := bufio.NewScanner(c)
	lines.Buffer(make([]byte, maxLine), maxLine)
	for c.SetReadDeadline(time.Now().Add(idleTimeout)) == nil && lines.Scan() {
		number, ok := strings.CutPrefix(lines.Text(), "PING ")
		if !ok {
			return
		}
		if s.hung.Load() {
			continue
		}
		if _, err := fmt.Fprintf(c, "PONG %s\n", number); err != nil {
			return
		}
	}
}
