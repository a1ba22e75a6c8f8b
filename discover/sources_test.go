package discover_test

import (
	"context"
	"encoding/json"
	"fmt"
	"net"
	"net/http"
	"net/http/httptest"
	"os"
	"path/filepath"
	"reflect"
	"strings"
	"sync/atomic"
	"testing"
	"time"

	"github.com/sonde-probe/sonde/discover"
	"github.com/sonde-probe/sonde/tests/testsync"
)

// found is an answer of a source.
type found struct {
	discover.Elements
	err error
}

// run runs a source until the test ends, and returns its answers.
func run(t *testing.T, s discover.Source) <-chan found {
	t.Helper()
	ctx, cancel := context.WithCancel(t.Context())
	answers, ended := make(chan found), make(chan struct{})
	go func() {
		defer close(ended)
		s.Run(ctx, func(all discover.Elements, err error) {
			select {
			case answers <- found{all, err}:
			case <-ctx.Done():
			}
		})
	}()
	t.Cleanup(func() { cancel(); <-ended })
	return answers
}

func write(t *testing.T, path, text string) {
	t.Helper()
	if err := os.WriteFile(path+".new", []byte(text), 0o600); err != nil {
		t.Fatal(err)
	}
	if err := os.Rename(path+".new", path); err != nil {
		t.Fatal(err)
	}
}

func TestFilesAreFollowed(t *testing.T) {
	dir := t.TempDir()
	one, two := filepath.Join(dir, "one.json"), filepath.Join(dir, "two.yml")
	write(t, one, `[{"targets": ["10.0.0.7:80", "db", "[::1]:443"], "labels": {"site": "a", "job": "web", "__meta_rack": "r1"}}]`)
	answers := run(t, discover.File{Files: []string{filepath.Join(dir, "*.json"), two}})
	first := testsync.Receive(t, "the first answer", answers)
	want := discover.Element{Address: "10.0.0.7", Port: 80, Labels: map[string]string{"site": "a"}, Meta: map[string]string{"job": "web", "__meta_rack": "r1"}}
	if got := first.Elements["10.0.0.7:80"]; !reflect.DeepEqual(got, want) || len(first.Elements) != 3 || first.Elements["db"].Port != 0 || first.Elements["[::1]:443"].Address != "::1" {
		t.Errorf("got %+v", first)
	}
	if first.err == nil || !strings.Contains(first.err.Error(), "two.yml") {
		t.Errorf("the file that is not there causes %v", first.err)
	}
	write(t, two, "- targets: ['10.0.0.8:80']\n")
	if next := testsync.Receive(t, "the answer with both files", answers); next.err != nil || len(next.Elements) != 4 {
		t.Errorf("got %+v", next)
	}
	write(t, two, "- targets: {'10.0.0.8:80'")
	if next := testsync.Receive(t, "the answer with a broken file", answers); next.err == nil || len(next.Elements) != 4 {
		t.Errorf("got %+v", next)
	}
	write(t, two, "- targets: ['10.0.0.8:80', '10.0.0.9:http', 'a b']\n")
	if next := testsync.Receive(t, "the answer with two invalid addresses", answers); len(next.Elements) != 4 || next.err == nil || !strings.Contains(next.err.Error(), "2 elements are left out") {
		t.Errorf("got %+v", next)
	}
}

func TestAliasesOfALongTextAreRejected(t *testing.T) {
	path := filepath.Join(t.TempDir(), "bomb.yml")
	write(t, path, "- targets: [a]\n  labels: {x: &t "+strings.Repeat("x", 100<<10)+", y: ["+strings.Repeat("*t, ", 20_000)+"]}\n")
	answer := testsync.Receive(t, "the answer", run(t, discover.File{Files: []string{path}}))
	if answer.err == nil || !strings.Contains(answer.err.Error(), "YAML aliases expand it to more than") {
		t.Errorf("got %v", answer.err)
	}
}

func TestAServerIsAsked(t *testing.T) {
	token := filepath.Join(t.TempDir(), "token")
	write(t, token, "secret\n")
	var asked atomic.Int32
	server := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		switch {
		case r.Header.Get("Authorization") != "Bearer secret" || r.Header.Get("X-Site") != "a":
			w.WriteHeader(http.StatusUnauthorized)
		case asked.Add(1) == 1:
			fmt.Fprint(w, `[{"targets": ["10.0.0.7:80"]}]`)
		case asked.Load() == 2:
			w.WriteHeader(http.StatusBadGateway)
		default:
			fmt.Fprint(w, `{"not": "a list"}`)
		}
	}))
	t.Cleanup(server.Close)
	answers := run(t, discover.HTTP{URL: server.URL, Refresh: time.Millisecond, BearerTokenFile: token, Headers: map[string][]string{"X-Site": {"a"}}})
	if first := testsync.Receive(t, "the first answer", answers); first.err != nil || len(first.Elements) != 1 {
		t.Errorf("got %+v", first)
	}
	for _, want := range []string{"status 502", "a list of groups is wanted"} {
		if next := testsync.Receive(t, "a broken answer", answers); next.err == nil || !strings.Contains(next.err.Error(), want) || len(next.Elements) != 0 {
			t.Errorf("got %+v, want %s", next, want)
		}
	}
}

func TestTheCatalogOfConsulIsFollowed(t *testing.T) {
	services := []map[string]any{
		{"Node": "n1", "Address": "10.0.0.1", "ServiceAddress": "", "ServiceID": "web-1", "ServicePort": 80, "ServiceTags": []string{"v1"}, "ServiceMeta": map[string]string{"zone": "a"}},
		{"Node": "n2", "Address": "10.0.0.2", "ServiceAddress": "10.1.0.2", "ServiceID": "web-2", "ServicePort": 81},
	}
	requests := make(chan string, 1)
	server := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		select {
		case requests <- r.URL.Path + "?" + r.URL.RawQuery:
		case <-r.Context().Done():
		}
		w.Header().Set("X-Consul-Index", "42")
		_ = json.NewEncoder(w).Encode(services)
	}))
	t.Cleanup(server.Close)
	answers := run(t, discover.Consul{Service: "web", Tags: []string{"v1"}, URL: server.URL + "/", Datacenter: "dc1"})
	if got := testsync.Receive(t, "the first request", requests); got != "/v1/catalog/service/web?dc=dc1&index=0&tag=v1&wait=30s" {
		t.Errorf("it asks for %s", got)
	}
	first := testsync.Receive(t, "the first answer", answers)
	want := discover.Elements{
		"10.0.0.1:80": {Address: "10.0.0.1", Port: 80, Labels: map[string]string{"zone": "a"}, Meta: map[string]string{"node": "n1", "id": "web-1", "tags": "v1"}},
		"10.1.0.2:81": {Address: "10.1.0.2", Port: 81, Meta: map[string]string{"node": "n2", "id": "web-2", "tags": ""}},
	}
	if first.err != nil || !reflect.DeepEqual(first.Elements, want) {
		t.Errorf("got %+v", first)
	}
	if got := testsync.Receive(t, "the next request", requests); !strings.Contains(got, "index=42") {
		t.Errorf("then it asks for %s", got)
	}
}

// A name is looked up by the name servers of the machine, which know localhost.
func TestNamesAreLookedUp(t *testing.T) {
	if ips, err := net.LookupHost("localhost"); err != nil || len(ips) == 0 {
		t.Skip("this machine does not know localhost")
	}
	answers := run(t, discover.DNS{Names: []string{"localhost"}, Type: "A", Port: 80})
	if first := testsync.Receive(t, "the first answer", answers); first.err != nil || first.Elements["127.0.0.1:80"].Meta["name"] != "localhost" {
		t.Errorf("got %+v", first)
	}
	answers = run(t, discover.DNS{Names: []string{"_web._tcp.invalid"}})
	if first := testsync.Receive(t, "the answer about no name", answers); first.err == nil || !strings.Contains(first.err.Error(), "_web._tcp.invalid") {
		t.Errorf("got %+v", first)
	}
}

func FuzzGroups(f *testing.F) {
	f.Add([]byte(`[{"targets": ["10.0.0.7:80", "[::1]:1"], "labels": {"a": "b"}}]`))
	f.Add([]byte("- targets: [a, 1, null]\n  labels: {x: [1]}\n"))
	dir := f.TempDir()
	f.Fuzz(func(t *testing.T, text []byte) {
		for _, name := range []string{"a.json", "a.yml"} {
			path := filepath.Join(dir, name)
			if err := os.WriteFile(path, text, 0o600); err != nil {
				t.Fatal(err)
			}
			all, _ := discover.File{Files: []string{path}}.Read()
			for key, e := range all {
				if e.Address == "" || len(key) > 400 {
					t.Errorf("%q has %+v", key, e)
				}
			}
		}
	})
}
