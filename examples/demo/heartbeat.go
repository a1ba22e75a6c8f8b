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

// Bounds on who talks to the heartbeat's port.
const (
	longestBeat = 64          // bytes of a line
	betweenBeat = time.Minute // after which a silent connection is closed
)

// listenForBeats answers heartbeats on an address, if there is one, until ctx is done
// or stop is called, which waits for the end.
func (s *service) listenForBeats(ctx context.Context, address string) (stop func(), err error) {
	if address == "" {
		return func() {}, nil
	}
	l, err := net.Listen("tcp", address)
	if err != nil {
		return nil, err
	}
	ctx, cancel := context.WithCancel(ctx)
	done := make(chan struct{})
	go func() {
		defer close(done)
		s.beat(ctx, l)
	}()
	return func() { cancel(); <-done }, nil
}

// beat answers each line "PING x" with "PONG x", on any number of connections, until
// ctx is done. While the service hangs it answers nothing.
func (s *service) beat(ctx context.Context, l net.Listener) {
	var connections sync.WaitGroup
	defer connections.Wait()
	stop := context.AfterFunc(ctx, func() { l.Close() })
	defer stop()
	for {
		c, err := l.Accept()
		if err != nil {
			return
		}
		connections.Go(func() { s.answerBeats(ctx, c) })
	}
}

func (s *service) answerBeats(ctx context.Context, c net.Conn) {
	defer c.Close()
	stop := context.AfterFunc(ctx, func() { c.Close() })
	defer stop()
	lines := bufio.NewScanner(c)
	lines.Buffer(make([]byte, longestBeat), longestBeat)
	for c.SetReadDeadline(time.Now().Add(betweenBeat)) == nil && lines.Scan() {
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
