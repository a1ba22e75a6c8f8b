package main

import (
	"bytes"
	"encoding/binary"
	"io"
	"net/http"
)

// The gRPC status codes and the values of grpc.health.v1 that Check uses.
const (
	grpcOK       = "0"
	grpcNotFound = "5"
	serving      = 1
	notServing   = 2
)

// maxHealthRequest limits a request to Check, in bytes.
const maxHealthRequest = 1 << 10

// check implements the method Check of grpc.health.v1 without a library. A request is one message
// with a header of five bytes; the last four bytes are the length.
func (s *service) check(w http.ResponseWriter, r *http.Request) {
	request, err := io.ReadAll(io.LimitReader(r.Body, maxHealthRequest))
	if err != nil || len(request) < 5 {
		http.Error(w, "not a gRPC message", http.StatusBadRequest)
		return
	}
	w.Header().Set("Content-Type", "application/grpc")
	demo := append([]byte{1<<3 | 2, byte(len("demo"))}, "demo"...) // field 1 of a HealthCheckRequest, a string; empty for the server as a whole
	if service := request[5:]; len(service) > 0 && !bytes.Equal(service, demo) {
		w.Header().Set(http.TrailerPrefix+"Grpc-Status", grpcNotFound)
		w.Header().Set(http.TrailerPrefix+"Grpc-Message", "unknown service")
		return
	}
	w.Header().Set(http.TrailerPrefix+"Grpc-Status", grpcOK)
	state := byte(serving)
	if s.broken.Load() || !s.started.Load() {
		state = notServing
	}
	message := []byte{1 << 3, state} // field 1, an enum
	_, _ = w.Write(append(binary.BigEndian.AppendUint32([]byte{0}, uint32(len(message))), message...))
}
