//go:build linux

package gateways

import (
	"bufio"
	"context"
	"encoding/json"
	"fmt"
	"io"
	"net"
	"net/http"
	"net/url"
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/hashicorp/consul/api"

	"github.com/sonde-probe/sonde/tests/gatewaytest"
)

// view is a gateway's own report of the backends that it uses.
type view struct {
	mu    sync.Mutex // guards used and since
	used  map[string]bool
	since map[string]time.Time // when a backend came into use, or went out of use
}

// follow calls read until the test ends, and keeps its result: addresses with the hosts of backends. A failed read changes nothing.
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

// sinceAll returns since when each backend has been in use, or out of use.
func (v *view) sinceAll() string {
	v.mu.Lock()
	defer v.mu.Unlock()
	return fmt.Sprint(v.used, v.since)
}

// setting returns the value of a YAML key on a page of docs/gateways.
func (s *scene) setting(page, key string) string {
	s.t.Helper()
	block := s.adapt(gatewaytest.CodeBlock(s.t, filepath.Join(pages, page), "yaml", key+": "))
	_, rest, _ := strings.Cut(block, key+": ")
	return strings.Trim(strings.Fields(rest)[0], "\"")
}

// every returns a function that waits, from one call to the next, for the duration in a setting on a page. It returns an error when
// ctx is done.
func (s *scene) every(page, key string) func(ctx context.Context) error {
	s.t.Helper()
	pause, err := time.ParseDuration(s.setting(page, key))
	if err != nil {
		s.t.Fatal(err)
	}
	ticker := time.NewTicker(pause)
	s.t.Cleanup(ticker.Stop)
	return func(ctx context.Context) error {
		select {
		case <-ctx.Done():
			return ctx.Err()
		case <-ticker.C:
			return nil
		}
	}
}

// startConsulClient follows by blocking queries of HashiCorp's client, at the address that the page gives for Traefik.
func startConsulClient(s *scene) {
	client, err := api.NewClient(&api.Config{Address: s.setting("consul.md", "address")})
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

// startXDS starts sonde-xds as its page says. Calls of the lab may be repeated.
func (s *scene) startXDS() {
	words := strings.Fields(s.adapt(gatewaytest.CodeBlock(s.t, filepath.Join(pages, "envoy.md"), "sh", "sonde-xds -follow")))
	words[0] = sondeXDS.build(s.t)
	gatewaytest.Start(s.t, takesConnections(s.listen), append(words, "-retries", "2")...)
}

// startCalls starts a client that makes a gRPC call for each request, with the bootstrap file of the page.
func startCalls(s *scene) {
	s.startXDS()
	bootstrap := gatewaytest.WriteFile(s.t, s.dir, "bootstrap.json", s.adapt(gatewaytest.CodeBlock(s.t, filepath.Join(pages, "envoy.md"), "json", "xds_servers")))
	gatewaytest.Start(s.t, gatewaytest.Accepts(s.front()), "/usr/bin/env", "GRPC_XDS_BOOTSTRAP="+bootstrap, labClient.build(s.t), "calls", s.front())
}

// startHealthClient starts a client that watches the members as services of grpc.health.v1.
func startHealthClient(s *scene) {
	s.startXDS()
	words := []string{"health", s.listen}
	for _, b := range s.backends {
		words = append(words, "web/"+b.name)
	}
	client := exec.Command(labClient.build(s.t), words...)
	client.Stderr = os.Stderr
	output, err := client.StdoutPipe()
	if err == nil {
		err = client.Start()
	}
	if err != nil {
		s.t.Fatal(err)
	}
	lines, serving := bufio.NewScanner(output), map[string]bool{}
	s.follow(func(context.Context) (addresses []string, err error) {
		if !lines.Scan() {
			return nil, io.EOF
		}
		service, status, _ := strings.Cut(lines.Text(), " ")
		serving[strings.TrimPrefix(service, "web/")] = status == "SERVING"
		for name, is := range serving {
			if is {
				addresses = append(addresses, s.at(backendNames[name])+":")
			}
		}
		return addresses, nil
	})
	s.t.Cleanup(func() { _ = client.Process.Kill(); _ = client.Wait() })
}

// startTraefikClient polls like Traefik's HTTP provider, with the address and interval of the page. Debian has no Traefik package.
func startTraefikClient(s *scene) {
	endpoint, wait := s.setting("traefik.md", "endpoint"), s.every("traefik.md", "pollInterval")
	s.follow(func(ctx context.Context) (addresses []string, err error) {
		if err := wait(ctx); err != nil {
			return nil, err
		}
		var answer struct {
			HTTP struct {
				Services map[string]struct {
					LoadBalancer struct{ Servers []struct{ URL string } }
				}
			}
		}
		if err := getJSON(ctx, endpoint, &answer); err != nil {
			return nil, err
		}
		for _, server := range answer.HTTP.Services["web"].LoadBalancer.Servers {
			addresses = append(addresses, server.URL)
		}
		return addresses, nil
	})
}

// startEDSClient polls like Envoy by REST, with the interval of the page. Debian has no Envoy package.
func startEDSClient(s *scene) {
	wait, version := s.every("envoy.md", "refresh_delay"), ""
	s.follow(func(ctx context.Context) (addresses []string, err error) {
		if err := wait(ctx); err != nil {
			return nil, err
		}
		var answer struct {
			Version   string `json:"version_info"`
			Resources []struct {
				Endpoints []struct {
					Endpoints []struct {
						Endpoint struct {
							Address struct {
								Socket struct{ Address string } `json:"socket_address"`
							}
						}
						Health string `json:"health_status"`
					} `json:"lb_endpoints"`
				}
			}
		}
		request := fmt.Sprintf(`{"version_info":%q,"node":{"id":"edge-1","cluster":"edge"},"resource_names":["web"]}`, version)
		if err := askJSON(ctx, http.MethodPost, "http://"+s.listen+"/v3/discovery:endpoints", request, &answer); err != nil {
			return nil, err // 304: nothing new
		}
		version = answer.Version
		for _, locality := range answer.Resources[0].Endpoints {
			for _, e := range locality.Endpoints {
				if e.Health == "HEALTHY" {
					addresses = append(addresses, e.Endpoint.Address.Socket.Address+":")
				}
			}
		}
		return addresses, nil
	})
}

// startPrometheus starts Prometheus, and queries its targets.
func startPrometheus(s *scene) {
	text := s.adapt(gatewaytest.CodeBlock(s.t, filepath.Join(pages, "prometheus.md"), "yaml", "http_sd_configs"))
	file := gatewaytest.WriteFile(s.t, s.dir, "prometheus.yml", text)
	address := net.JoinHostPort(s.at("12"), gatewaytest.FreePort(s.t))
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

// getJSON decodes the response to a request. It returns an error unless the status is 200.
func getJSON(ctx context.Context, url string, answer any) error {
	return askJSON(ctx, http.MethodGet, url, "", answer)
}

// askJSON is like getJSON with another method, and with a body.
func askJSON(ctx context.Context, method, url, body string, answer any) error {
	r, err := http.NewRequestWithContext(ctx, method, url, strings.NewReader(body))
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
