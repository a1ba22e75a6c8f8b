package main

import (
	"bytes"
	"encoding/binary"
	"io"
	"net/http"
)

// The parts of gRPC's status codes and of grpc.health.v1 that are needed here.
const (
	grpcOK       = "0"
	grpcNotFound = "5"
	serving      = 1
	notServing   = 2
)

// maxHealthRequest bounds a request to Check, in bytes.
const maxHealthRequest = 1 << 10

// check serves Check of grpc.health.v1 without a library: a request is one message,
// and a message has five bytes before it, the last four of which are its length.
func (s *service) check(w http.ResponseWriter, r *http.Request) {
	request, err := io.ReadAll(io.LimitReader(r.Body, maxHealthRequest))
	if err != nil || len(request) < 5 {
		http.Error(w, "not a gRPC message", http.StatusBadRequest)
		return
	}
	w.Header().Set("Content-Type", "application/grpc")
	if !s.knows(request[5:]) {
		w.Header().Set(http.TrailerPrefix+"Grpc-Status", grpcNotFound)
		w.Header().Set(http.TrailerPrefix+"Grpc-Message", "unknown service")
		return
	}
	w.Header().Set(http.TrailerPrefix+"Grpc-Status", grpcOK)
	state := byte(serving)
	if s.broken.Load() || !s.started.Load() {
		state = notServing
	}
	message := []byte{1 << 3, state} // field 1, a number
	_, _ = w.Write(append(binary.BigEndian.AppendUint32([]byte{0}, uint32(len(message))), message...))
}

// knows reports whether a HealthCheckRequest is about the server as a whole or about
// the service demo.
func (s *service) knows(message []byte) bool {
	const name = "demo"
	asked := append([]byte{1<<3 | 2, byte(len(name))}, name...) // field 1, a text
	return len(message) == 0 || bytes.Equal(message, asked)
}
