package main

import (
	"encoding/json"
	"io"
	"net"
	"os"

	"google.golang.org/grpc"
	"google.golang.org/grpc/health"
	"google.golang.org/grpc/health/grpc_health_v1"
)

// serve serves gRPC's health service on all addresses of this machine. It prints its port, and returns at the end of its standard
// input.
func serve() error {
	listener, err := net.Listen("tcp4", ":0")
	if err != nil {
		return err
	}
	s := grpc.NewServer()
	grpc_health_v1.RegisterHealthServer(s, health.NewServer())
	ended := make(chan error, 1)
	go func() { ended <- s.Serve(listener) }()
	port := listener.Addr().(*net.TCPAddr).Port
	if err := json.NewEncoder(os.Stdout).Encode(map[string]int{"Port": port}); err != nil {
		return err
	}
	_, _ = io.Copy(io.Discard, os.Stdin)
	s.Stop()
	return <-ended
}
