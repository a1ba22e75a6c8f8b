package main

import (
	"io"
	"net/http"
	"net/http/httptest"
	"strings"
	"testing"
)

// check calls Check over HTTP/2 and returns the response's message and status.
func check(t *testing.T, s *service, message string) (answer, status string) {
	t.Helper()
	server := httptest.NewUnstartedServer(s.routes())
	server.Config.Protocols = protocols()
	server.Start()
	defer server.Close()
	transport := &http.Transport{Protocols: new(http.Protocols)}
	transport.Protocols.SetUnencryptedHTTP2(true)
	defer transport.CloseIdleConnections()
	client := http.Client{Transport: transport}
	got, err := client.Post(server.URL+"/grpc.health.v1.Health/Check", "application/grpc", strings.NewReader(message))
	if err != nil {
		t.Fatal(err)
	}
	defer got.Body.Close()
	text, err := io.ReadAll(got.Body)
	if err != nil || got.ProtoMajor != 2 {
		t.Fatalf("%s: %v", got.Proto, err)
	}
	return string(text), got.Trailer.Get("Grpc-Status")
}

func TestGRPCHealthFollowsTheService(t *testing.T) {
	const all, demo, other = "\x00\x00\x00\x00\x00", "\x00\x00\x00\x00\x06\x0a\x04demo", "\x00\x00\x00\x00\x05\x0a\x03web"
	s := &service{}
	for _, step := range []struct {
		name           string
		before         func()
		message        string
		answer, status string
	}{
		{"starting", func() {}, all, "\x00\x00\x00\x00\x02\x08\x02", "0"},
		{"started", func() { s.started.Store(true) }, all, "\x00\x00\x00\x00\x02\x08\x01", "0"},
		{"by name", func() {}, demo, "\x00\x00\x00\x00\x02\x08\x01", "0"},
		{"by another name", func() {}, other, "", "5"},
		{"broken", func() { s.broken.Store(true) }, demo, "\x00\x00\x00\x00\x02\x08\x02", "0"},
	} {
		step.before()
		if answer, status := check(t, s, step.message); answer != step.answer || status != step.status {
			t.Errorf("%s: %q with status %q, want %q with %q", step.name, answer, status, step.answer, step.status)
		}
	}
}
