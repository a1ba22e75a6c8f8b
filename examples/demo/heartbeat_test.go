package main

import (
	"bufio"
	"context"
	"fmt"
	"net"
	"testing"
	"time"
)

func TestHeartbeatsAreAnsweredUntilTheServiceHangs(t *testing.T) {
	l, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	s := &service{}
	ctx, cancel := context.WithCancel(t.Context())
	ended := make(chan struct{})
	go func() { s.serveHeartbeats(ctx, l); close(ended) }()

	c, err := net.Dial("tcp", l.Addr().String())
	if err != nil {
		t.Fatal(err)
	}
	defer c.Close()
	answers := bufio.NewReader(c)
	for n := range 3 {
		fmt.Fprintf(c, "PING %d\n", n)
		if got, err := answers.ReadString('\n'); err != nil || got != fmt.Sprintf("PONG %d\n", n) {
			t.Errorf("got %q, %v", got, err)
		}
	}
	s.hung.Store(true)
	fmt.Fprint(c, "PING 3\n")
	if err := c.SetReadDeadline(time.Now().Add(50 * time.Millisecond)); err != nil {
		t.Fatal(err)
	}
	if got, err := answers.ReadString('\n'); err == nil {
		t.Errorf("answered %q while hanging", got)
	}
	cancel()
	<-ended
}

func TestInvalidHeartbeatClosesTheConnection(t *testing.T) {
	for _, text := range []string{"GET / HTTP/1.1\r\n", "a line that is much longer than any beat that a client of this service would send\n"} {
		client, server := net.Pipe()
		go func() { fmt.Fprint(client, text); client.Close() }()
		new(service).answerHeartbeats(t.Context(), server)
		if _, err := server.Write([]byte("x")); err == nil {
			t.Errorf("after %q the connection is still open", text)
		}
	}
}
