package docker

import (
	"bytes"
	"context"
	"errors"
	"io"
	"net"
	"net/http"
	"path/filepath"
	"strings"
	"syscall"
	"testing"
	"time"

	"github.com/sonde-probe/sonde/tests/testsync"
)

// serve runs a handler in place of a runtime, and returns a client.
func serve(t testing.TB, handle http.HandlerFunc) *Client {
	t.Helper()
	socket := filepath.Join(testsync.SocketDir(t), "s")
	listener, err := net.Listen("unix", socket)
	if err != nil {
		t.Fatal(err)
	}
	mux := http.NewServeMux()
	mux.HandleFunc("/_ping", func(w http.ResponseWriter, _ *http.Request) { w.Header().Set("Api-Version", "1.41") })
	mux.HandleFunc("/", handle)
	server := &http.Server{Handler: mux}
	go func() { _ = server.Serve(listener) }()
	t.Cleanup(func() { _ = server.Close() })
	return New(socket)
}

func TestErrorsHaveAKind(t *testing.T) {
	answers := map[string]struct {
		status int
		kind   error
	}{
		"missing":   {http.StatusNotFound, ErrNotFound},
		"paused":    {http.StatusConflict, ErrConflict},
		"forbidden": {http.StatusForbidden, ErrPermission},
		"broken":    {http.StatusInternalServerError, nil},
	}
	c := serve(t, func(w http.ResponseWriter, r *http.Request) {
		name := strings.Split(r.URL.Path, "/")[3]
		w.WriteHeader(answers[name].status)
		_, _ = io.WriteString(w, `{"message":"it is\n`+name+`"}`)
	})
	for name, want := range answers {
		_, err := c.Inspect(t.Context(), name)
		var e *Error
		if !errors.As(err, &e) || e.Status != want.status || want.kind != nil && !errors.Is(err, want.kind) || !strings.Contains(err.Error(), "it is "+name) {
			t.Errorf("%s: %#v", name, err)
		}
	}
}

func TestARuntimeThatIsTooOldOrNoneIsRefused(t *testing.T) {
	for version, want := range map[string]string{
		"1.39": "has API version 1.39, but Sonde needs at least 1.40",
		"":     "is not the socket of a container runtime",
		"x.1":  "is not the socket of a container runtime",
		"1.99": "",
	} {
		socket := filepath.Join(testsync.SocketDir(t), "s")
		listener, err := net.Listen("unix", socket)
		if err != nil {
			t.Fatal(err)
		}
		server := &http.Server{Handler: http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
			w.Header().Set("Api-Version", version)
			if r.URL.Path != "/_ping" && !strings.HasPrefix(r.URL.Path, "/v1.44/") {
				t.Errorf("%s is called", r.URL.Path)
			}
			_, _ = io.WriteString(w, `{"Id":"x"}`)
		})}
		go func() { _ = server.Serve(listener) }()
		_, err = New(socket).Inspect(t.Context(), "x")
		if want == "" && err != nil || want != "" && (err == nil || !strings.Contains(err.Error(), want)) {
			t.Errorf("%q: %v", version, err)
		}
		_ = server.Close()
	}
}

func TestAnAnswerIsBounded(t *testing.T) {
	c := serve(t, func(w http.ResponseWriter, _ *http.Request) {
		_, _ = io.WriteString(w, `{"Id":"`)
		for {
			if _, err := w.Write(bytes.Repeat([]byte("x"), 1<<16)); err != nil {
				return
			}
		}
	})
	if _, err := c.Inspect(t.Context(), "x"); err == nil || !strings.Contains(err.Error(), "the response exceeds") {
		t.Error(err)
	}
}

func TestARuntimeThatDoesNotAnswerCostsATimeout(t *testing.T) {
	hang := make(chan struct{})
	defer close(hang)
	c := serve(t, func(http.ResponseWriter, *http.Request) { <-hang })
	ctx, cancel := context.WithTimeout(t.Context(), 50*time.Millisecond)
	defer cancel()
	if _, err := c.Inspect(ctx, "x"); !errors.Is(err, ErrTimeout) {
		t.Error(err)
	}
}

func TestEventsOfDockerAndPodmanAreDecoded(t *testing.T) {
	const id = "4e293801e14a778fd5397b45a902a227596efa79c90c941b90e5a6a017e7ec4e"
	for line, want := range map[string]event{
		`{"Type":"container","Action":"die","Actor":{"ID":"` + id + `","Attributes":{"containerExitCode":"3","exitCode":"3"}},"timeNano":7}`: {action: "die", code: 3},
		`{"Type":"container","Action":"died","Actor":{"ID":"` + id + `","Attributes":{"containerExitCode":"3"}},"timeNano":7}`:               {action: "die", code: 3},
		`{"Type":"container","Action":"kill","Actor":{"ID":"` + id + `","Attributes":{"signal":"28"}},"timeNano":7}`:                         {action: "kill", code: -1, signal: syscall.SIGWINCH},
		`{"Type":"container","Action":"remove","Actor":{"ID":"` + id + `"},"timeNano":7}`:                                                    {action: "destroy", code: -1},
	} {
		want.id, want.at = id, time.Unix(0, 7)
		if e, ok := decodeEvent([]byte(line)); !ok || e != want {
			t.Errorf("%s: %+v, want %+v", line, e, want)
		}
	}
	for _, line := range []string{``, `{}`, `{"Type":"image","Action":"die","Actor":{"ID":"x"}}`, `[1]`, `{"Type":"container","Action":"die"}`} {
		if e, ok := decodeEvent([]byte(line)); ok {
			t.Errorf("%q: %+v", line, e)
		}
	}
}

func FuzzEvents(f *testing.F) {
	f.Add([]byte(`{"Type":"container","Action":"die","Actor":{"ID":"a","Attributes":{"exitCode":"3"}},"timeNano":7}` + "\n{}\n"))
	f.Fuzz(func(t *testing.T, stream []byte) {
		if err := readEvents(bytes.NewReader(stream), func(e event) {
			if e.id == "" {
				t.Error("an event without a container")
			}
		}); err == nil {
			t.Error("the stream has ended without an error")
		}
	})
}

func FuzzDemultiplex(f *testing.F) {
	f.Add([]byte("\x01\x00\x00\x00\x00\x00\x00\x03abc\x02\x00\x00\x00\x00\x00\x00\x01d"))
	f.Add([]byte("\x03\x00\x00\x00\x00\x00\x00\x03bad"))
	f.Add([]byte("\x01\x00\x00\x00\xff\xff\xff\xffabc"))
	f.Fuzz(func(t *testing.T, stream []byte) {
		var stdout, stderr bytes.Buffer
		err := demultiplex(bytes.NewReader(stream), &stdout, &stderr)
		if n := stdout.Len() + stderr.Len(); n > len(stream) || err == nil && n > 0 && n+8 > len(stream) {
			t.Errorf("%d bytes of %d", n, len(stream))
		}
	})
}

func FuzzInspect(f *testing.F) {
	f.Add([]byte(`{"Id":"a","State":{"StartedAt":"2026-11-30T17:16:02.5Z"},"NetworkSettings":{"Networks":{"a":{"IPAddress":"10.0.0.1"}},"Ports":{"80/tcp":[{"HostIp":"0.0.0.0","HostPort":"8080"}]}}}`))
	answer := make(chan []byte, 1)
	c := serve(f, func(w http.ResponseWriter, _ *http.Request) { _, _ = w.Write(<-answer) })
	f.Fuzz(func(t *testing.T, text []byte) {
		answer <- text
		if got, err := c.Inspect(t.Context(), "x"); err == nil && got.ID == "" {
			t.Errorf("%q is a container without an ID", text)
		}
	})
}
