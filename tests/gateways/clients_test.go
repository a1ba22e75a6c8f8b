//go:build linux

package gateways

import (
	"context"
	"encoding/json"
	"fmt"
	"net"
	"net/http"
	"net/url"
	"path/filepath"
	"slices"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/hashicorp/consul/api"

	"github.com/sonde-probe/sonde/tests/gatewaytest"
)

// view is what a gateway says itself about the backends that it uses.
type view struct {
	mu    sync.Mutex // guards used and since
	used  map[string]bool
	since map[string]time.Time // when a backend came into use, or fell out of it
}

// follow calls read until the test ends, and keeps what it returns: addresses with the hosts of
// backends. A read that fails changes nothing.
func (s *scene) follow(read func(context.Context) ([]string, error)) {
	s.view = &view{used: map[string]bool{}, since: map[string]time.Time{}}
	ctx, cancel := context.WithCancel(context.Background())
	var ended sync.WaitGroup
	ended.Go(func() {
		for ctx.Err() == nil {
			addresses, err := read(ctx)
			if err != nil {
				time.Sleep(10 * time.Millisecond)
				continue
			}
			used := map[string]bool{}
			for name, host := range backendNames {
				used[name] = slices.ContainsFunc(addresses, func(a string) bool { return strings.Contains(a, s.at(host)+":") })
			}
			s.view.set(used)
		}
	})
	s.t.Cleanup(func() { cancel(); ended.Wait() })
}

func (v *view) set(used map[string]bool) {
	v.mu.Lock()
	defer v.mu.Unlock()
	for name, is := range used {
		if is != v.used[name] {
			v.used[name], v.since[name] = is, time.Now()
		}
	}
}

// await waits until a backend is in use, or is not, and returns since when.
func (v *view) await(t *testing.T, name string, used bool) (since time.Time) {
	t.Helper()
	until(t, fmt.Sprint("the use of ", name, ": ", used), func() bool {
		v.mu.Lock()
		defer v.mu.Unlock()
		since = v.since[name]
		return v.used[name] == used
	})
	return since
}

// sinceAll returns since when each backend is in use, or out of it.
func (v *view) sinceAll() string {
	v.mu.Lock()
	defer v.mu.Unlock()
	return fmt.Sprint(v.used, v.since)
}

// startConsulClient follows by blocking queries of HashiCorp's client.
func startConsulClient(s *scene) {
	client, err := api.NewClient(&api.Config{Address: s.listen})
	if err != nil {
		s.t.Fatal(err)
	}
	var index uint64
	s.follow(func(ctx context.Context) (addresses []string, err error) {
		query := (&api.QueryOptions{WaitIndex: index, WaitTime: time.Minute}).WithContext(ctx)
		entries, meta, err := client.Health().Service("web", "", true, query)
		if err != nil {
			return nil, err
		}
		index = meta.LastIndex
		for _, e := range entries {
			addresses = append(addresses, fmt.Sprint(e.Service.Address, ":", e.Service.Port))
		}
		return addresses, nil
	})
}

// startTraefikClient asks as Traefik's HTTP provider does, at the interval of the page. There
// is no Traefik among Debian's packages.
func startTraefikClient(s *scene) {
	poll := time.NewTicker(time.Second)
	s.t.Cleanup(poll.Stop)
	s.follow(func(ctx context.Context) (addresses []string, err error) {
		select {
		case <-ctx.Done():
			return nil, ctx.Err()
		case <-poll.C:
		}
		var answer struct {
			HTTP struct {
				Services map[string]struct {
					LoadBalancer struct{ Servers []struct{ URL string } }
				}
			}
		}
		if err := getJSON(ctx, "http://"+s.listen+"/v1/traefik", &answer); err != nil {
			return nil, err
		}
		for _, server := range answer.HTTP.Services["web"].LoadBalancer.Servers {
			addresses = append(addresses, server.URL)
		}
		return addresses, nil
	})
}

// startPrometheus starts Prometheus, and asks it for its targets.
func startPrometheus(s *scene) {
	text := s.adapt(gatewaytest.CodeBlock(s.t, filepath.Join(pages, "prometheus.md"), "yaml", "http_sd_configs"))
	file := gatewaytest.WriteFile(s.t, s.dir, "prometheus.yml", text)
	address := net.JoinHostPort(s.at("12"), s.freePort("12"))
	query := "http://" + address + "/api/v1/targets?" + url.Values{"state": {"active"}}.Encode()
	ready := func() bool { return getJSON(context.Background(), query, &struct{}{}) == nil }
	gatewaytest.Start(s.t, ready, "prometheus", "--config.file="+file, "--storage.tsdb.path="+filepath.Join(s.dir, "data"), "--web.listen-address="+address)
	s.follow(func(ctx context.Context) (addresses []string, err error) {
		var answer struct {
			Data struct {
				ActiveTargets []struct{ Labels map[string]string }
			}
		}
		if err := getJSON(ctx, query, &answer); err != nil {
			return nil, err
		}
		for _, target := range answer.Data.ActiveTargets {
			addresses = append(addresses, target.Labels["instance"])
		}
		select {
		case <-ctx.Done():
		case <-time.After(5 * time.Millisecond):
		}
		return addresses, nil
	})
}

// getJSON reads the answer to a request, unless its status is not 200.
func getJSON(ctx context.Context, url string, answer any) error {
	r, err := http.NewRequestWithContext(ctx, http.MethodGet, url, nil)
	if err != nil {
		return err
	}
	response, err := http.DefaultClient.Do(r)
	if err != nil {
		return err
	}
	defer response.Body.Close()
	if response.StatusCode != http.StatusOK {
		return fmt.Errorf("status %d", response.StatusCode)
	}
	return json.NewDecoder(response.Body).Decode(answer)
}
