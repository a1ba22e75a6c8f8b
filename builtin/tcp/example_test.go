package tcpprobe_test

import (
	"context"
	"fmt"
	"io"
	"net"
	"net/netip"
	"time"

	tcpprobe "github.com/sonde-probe/sonde/builtin/tcp"
	"github.com/sonde-probe/sonde/probe"
)

func ExampleNew() {
	listener, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		fmt.Println(err)
		return
	}
	defer listener.Close()
	go func() { // a server that is still loading
		conn, err := listener.Accept()
		if err != nil {
			return
		}
		defer conn.Close()
		conn.Read(make([]byte, 6))
		io.WriteString(conn, "-LOADING\r\n")
	}()
	at := netip.MustParseAddrPort(listener.Addr().String())

	handler, err := tcpprobe.New(tcpprobe.Config{Port: "redis", Send: "PING\r\n", Expect: "+PONG"})
	if err != nil {
		fmt.Println(err)
		return
	}
	ctx, cancel := context.WithTimeout(context.Background(), 10*time.Second)
	defer cancel()
	result := handler.Probe(ctx, probe.Target{
		Name:    "shop/cache",
		Address: at.Addr().String(),
		Ports:   map[string]uint16{"redis": at.Port()},
	})
	fmt.Println(result.Outcome, result.Reason, result.Detail)
	// Output: failure tcp.expect the response of 10 bytes is not what was expected
}
