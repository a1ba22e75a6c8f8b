package main

import (
	"context"
	"net/http"
	"net/http/httptest"
	"os"
	"path/filepath"
	"testing"
	"time"
)

// status returns the status of a response.
func status(t *testing.T, h http.Handler, method, path string) int {
	t.Helper()
	answer := httptest.NewRecorder()
	h.ServeHTTP(answer, httptest.NewRequest(method, path, nil))
	return answer.Code
}

func TestServiceIsReadyOnceItHasStarted(t *testing.T) {
	s := &service{}
	h := s.routes()
	if got := status(t, h, "GET", "/ready"); got != 503 {
		t.Errorf("before the start /ready is %d", got)
	}
	file := filepath.Join(t.TempDir(), "started")
	if err := s.start(file); err != nil {
		t.Fatal(err)
	}
	if got := status(t, h, "GET", "/ready"); got != 200 {
		t.Errorf("after the start /ready is %d", got)
	}
	if _, err := os.Stat(file); err != nil {
		t.Error(err)
	}
}

func TestServiceStaysBroken(t *testing.T) {
	h := new(service).routes()
	for _, step := range []struct {
		method, path string
		want         int
	}{
		{"GET", "/healthz", 200}, {"GET", "/break", 405}, {"POST", "/break", 200}, {"GET", "/healthz", 503}, {"GET", "/healthz", 503},
	} {
		if got := status(t, h, step.method, step.path); got != step.want {
			t.Errorf("%s %s is %d, want %d", step.method, step.path, got, step.want)
		}
	}
}

func TestHangingServiceDoesNotAnswer(t *testing.T) {
	server := httptest.NewServer(new(service).routes())
	defer server.Close()
	if answer, err := http.Post(server.URL+"/hang", "", nil); err != nil {
		t.Fatal(err)
	} else {
		answer.Body.Close()
	}
	client := http.Client{Timeout: 50 * time.Millisecond}
	if answer, err := client.Get(server.URL + "/healthz"); err == nil {
		answer.Body.Close()
		t.Errorf("the answer is %s", answer.Status)
	}
}

func TestDemoRemovesItsFileWhenItEnds(t *testing.T) {
	file := filepath.Join(t.TempDir(), "started")
	if err := os.WriteFile(file, nil, 0o600); err != nil {
		t.Fatal(err)
	}
	ctx, cancel := context.WithCancel(t.Context())
	cancel()
	if err := run(ctx, "127.0.0.1:0", "", time.Hour, file); err != nil {
		t.Fatal(err)
	}
	if _, err := os.Stat(file); !os.IsNotExist(err) {
		t.Errorf("the file is still there: %v", err)
	}
}
