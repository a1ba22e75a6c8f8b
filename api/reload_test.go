package api_test

import (
	"context"
	"encoding/json"
	"errors"
	"net"
	"net/http"
	"path/filepath"
	"slices"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"testing/synctest"
	"time"

	"github.com/sonde-probe/sonde/api"
	"github.com/sonde-probe/sonde/engine"
	"github.com/sonde-probe/sonde/internal/listener"
	"github.com/sonde-probe/sonde/probe"
	"github.com/sonde-probe/sonde/tests/testsync"
)

// reloading returns a configuration whose reloads are counted. They succeed, unless forced.
func reloading(token string) (api.Config, *atomic.Int32) {
	count := &atomic.Int32{}
	return api.Config{
		Token: token,
		Reload: func(_ context.Context, force bool) (api.Reload, error) {
			count.Add(1)
			if force {
				return api.Reload{Error: &api.Error{Status: 422, Message: "the configuration has 1 error"}, Problems: "a secret line"}, nil
			}
			return api.Reload{Applied: true}, nil
		},
		LastReload: func() api.Reload { return api.Reload{Applied: true, Problems: "a secret line"} },
	}, count
}

func TestNobodyReloadsWithoutTheToken(t *testing.T) {
	bearer := map[string]string{"Authorization": "Bearer " + token}
	for _, c := range []struct {
		name, token string
		request
		reloads int32
	}{
		{"no token is configured", "", request{want: 403}, 0},
		{"no token is configured, one is sent", "", request{headers: bearer, want: 403}, 0},
		{"an empty one is sent", "", request{headers: map[string]string{"Authorization": "Bearer "}, want: 403}, 0},
		{"its own page", "", request{headers: map[string]string{"Origin": "http://127.0.0.1:9650"}, want: 403}, 0},
		{"none is sent", token, request{want: 401}, 0},
		{"another is sent", token, request{headers: map[string]string{"Authorization": "Bearer " + token + "x"}, want: 401}, 0},
		{"in the query", token, request{path: "/v1/reload?token=" + token, want: 401}, 0},
		{"another site's page", token, request{headers: map[string]string{"Authorization": "Bearer " + token, "Origin": "http://evil.example"}, want: 403}, 0},
		{"by PUT", token, request{method: http.MethodPut, headers: bearer, want: 405}, 0},
		{"by GET", token, request{method: http.MethodGet, headers: bearer, want: 200}, 0},
		{"it is sent", token, request{headers: bearer, want: 200}, 1},
		{"it is sent, and the configuration is rejected", token, request{path: "/v1/reload?force=true", headers: bearer, want: 422}, 1},
		{"it is sent with a typing error", token, request{path: "/v1/reload?forced=true", headers: bearer, want: 400}, 0},
	} {
		config, count := reloading(c.token)
		if c.path == "" {
			c.path = "/v1/reload"
		}
		if c.method == "" {
			c.method = http.MethodPost
		}
		w := c.do(server(t, config))
		if w.Code != c.want || count.Load() != c.reloads {
			t.Errorf("%s: status %d, want %d, and %d reloads: %s", c.name, w.Code, c.want, count.Load(), w.Body)
		}
	}
}

func TestAPlanNeedsTheTokenAndOtherFilesTheUserOfTheEngine(t *testing.T) {
	plans := 0
	config := api.Config{Token: token, Plan: func(context.Context, []string) (api.Plan, error) {
		plans++
		return api.Plan{}, nil
	}}
	bearer := map[string]string{"Authorization": "Bearer " + token}
	for _, r := range []request{
		{path: "/v1/plan", want: 401},
		{path: "/v1/plan?config=/etc/shadow", headers: bearer, want: 403},
		{path: "/v1/plan?files=/etc/shadow", headers: bearer, want: 400},
		{path: "/v1/plan", method: http.MethodGet, headers: bearer, want: 405},
	} {
		if r.method == "" {
			r.method = http.MethodPost
		}
		if w := r.do(server(t, config)); w.Code != r.want || plans != 0 {
			t.Errorf("%+v: status %d, %d plans: %s", r, w.Code, plans, w.Body)
		}
	}
	if w := (request{method: http.MethodPost, path: "/v1/plan", headers: bearer}).do(server(t, config)); w.Code != 200 || plans != 1 {
		t.Errorf("with the token: status %d, %d plans", w.Code, plans)
	}
}

func TestLinesOfTheConfigurationAreForThoseWhoMayReload(t *testing.T) {
	config, _ := reloading(token)
	s := server(t, config)
	bearer := map[string]string{"Authorization": "Bearer " + token}
	if w := (request{path: "/v1/reload", headers: bearer}).do(s); strings.Contains(w.Body.String(), "secret line") {
		t.Errorf("GET responds %s", w.Body)
	}
	w := request{method: http.MethodPost, path: "/v1/reload?force=true", headers: bearer}.do(s)
	var r api.Reload
	if err := json.Unmarshal(w.Body.Bytes(), &r); err != nil || r.Problems == "" || r.Error == nil {
		t.Errorf("POST responds %s, %v", w.Body, err)
	}
}

// bySocket serves on a socket until the test ends, and returns a client for it.
func bySocket(t *testing.T, s *api.Server) *api.Client {
	t.Helper()
	path := filepath.Join(testsync.SocketDir(t), "socket")
	l, err := listener.Listen(t.Context(), "unix:"+path, listener.ForUser)
	if err != nil {
		t.Fatal(err)
	}
	ctx, cancel := context.WithCancel(t.Context())
	served := make(chan error, 1)
	go func() { served <- s.Serve(ctx, l) }()
	dial := func(ctx context.Context, _, _ string) (net.Conn, error) {
		return new(net.Dialer).DialContext(ctx, "unix", path)
	}
	transport := &http.Transport{DialContext: dial}
	t.Cleanup(func() {
		transport.CloseIdleConnections()
		cancel()
		if err := <-served; err != nil {
			t.Error(err)
		}
	})
	return &api.Client{Base: "http://any", HTTP: &http.Client{Transport: transport}}
}

// A browser that is connected to the control socket, for instance by ssh -L, may show the page, and no other page may
// use the socket.
func TestABrowserOverTheControlSocketIsTheEnginesOwnPage(t *testing.T) {
	restarted := 0
	operate := func(context.Context, string, api.Operation, string) (changed, saved bool, err error) {
		restarted++
		return true, true, nil
	}
	c := bySocket(t, server(t, api.Config{Operate: operate, Self: func() string { return "engine 1" }}))
	for _, a := range []request{
		{name: "a command", method: "POST", host: "any", want: 200},
		{name: "its own page", method: "POST", host: "localhost:9651", headers: map[string]string{"Origin": "http://localhost:9651", "Sec-Fetch-Site": "same-origin"}, want: 200},
		{name: "another page", method: "POST", host: "localhost:9651", headers: map[string]string{"Origin": "http://evil.example"}, want: 403},
		{name: "a form of another page", method: "POST", host: "localhost:9651", headers: map[string]string{"Sec-Fetch-Site": "cross-site", "Origin": "null"}, want: 403},
		{name: "a page of a name that leads here", method: "POST", host: "evil.example", headers: map[string]string{"Origin": "http://evil.example", "Sec-Fetch-Site": "same-origin"}, want: 403},
	} {
		r, err := http.NewRequest(a.method, c.Base+"/v1/targets/web/restart", nil)
		if err != nil {
			t.Fatal(err)
		}
		r.Host = a.host
		for k, v := range a.headers {
			r.Header.Set(k, v)
		}
		before := restarted
		res, err := c.HTTP.Do(r)
		if err != nil {
			t.Fatal(err)
		}
		res.Body.Close()
		if res.StatusCode != a.want || (restarted > before) != (a.want == 200) {
			t.Errorf("%s: status %d, want %d; %d restarts", a.name, res.StatusCode, a.want, restarted-before)
		}
	}
}

// Other users of the machine cannot read the files of the configuration.
func TestArgumentsOfHandlersAreForTheUserOfTheEngineOrATokenOnly(t *testing.T) {
	const arguments = `command = ["mysqladmin", "--password=hunter2", "ping"]`
	e := engine.New(engine.Config{})
	p := probe.Probe{Handler: probe.HandlerFunc(func(context.Context, probe.Target) probe.Result { return probe.Succeed("") }), HandlerName: "exec", Settings: arguments}
	if _, err := e.Apply(probe.Set{{Target: "web", Kind: probe.Readiness}: p}); err != nil {
		t.Fatal(err)
	}
	open, guarded := server(t, api.Config{Engine: e}), server(t, api.Config{Engine: e, Token: token})
	bearer := map[string]string{"Authorization": "Bearer " + token}
	for name, c := range map[string]struct {
		body string
		want bool
	}{
		"without a token": {request{path: "/v1/targets/web"}.do(open).Body.String(), false},
		"with a token":    {request{path: "/v1/targets/web", headers: bearer}.do(guarded).Body.String(), true},
	} {
		if !strings.Contains(c.body, `"handler"`) || strings.Contains(c.body, "hunter2") != c.want {
			t.Errorf("%s: %s", name, c.body)
		}
	}
	if got, err := bySocket(t, open).Target(t.Context(), "web"); err != nil || len(got.Probes) != 1 || got.Probes[0].Settings != arguments {
		t.Errorf("by the socket: %+v, %v", got, err)
	}
}

func TestTheUserOfTheEngineNeedsNoToken(t *testing.T) {
	const self = "pid 7 of sonde@db, 127.0.0.1:9650, /etc/sonde"
	config, count := reloading(token)
	config.TLS, _, _ = certificates(t)
	config.Self = func() string { return self }
	c := bySocket(t, server(t, config))
	var told []string
	c.Engine = func(engine string) { told = append(told, engine) }
	if r, err := c.Reload(t.Context(), false); err != nil || !r.Applied || count.Load() != 1 {
		t.Errorf("got %+v, %v", r, err)
	}
	if r, err := c.Reload(t.Context(), true); err != nil || r.Error == nil {
		t.Errorf("a rejected configuration: got %+v, %v", r, err)
	}
	if _, err := c.Target(t.Context(), "gone"); err == nil {
		t.Error("there is a target")
	}
	if !slices.Equal(told, []string{self, self, self}) {
		t.Errorf("told %q", told)
	}
}

// An operator who changes an engine learns which one it is; a client that only reads does not.
func TestOperatorsAreToldWhichEngineHasAnswered(t *testing.T) {
	config, _ := reloading(token)
	config.Self = func() string { return "pid 7" }
	s := server(t, config)
	for _, r := range []struct {
		request
		want string
	}{
		{request{method: http.MethodPost, path: "/v1/reload"}, "pid 7"},
		{request{method: http.MethodPost, path: "/v1/beat/web"}, "sonde"},
		{request{path: "/v1/targets"}, "sonde"},
		{request{path: "/healthz"}, "sonde"},
		{request{path: "/nothing"}, "sonde"},
		{request{path: "/v1/targets", method: http.MethodPut}, "sonde"},
	} {
		r.headers = map[string]string{"Authorization": "Bearer " + token}
		if got := r.do(s).Header().Get(api.HeaderEngine); got != r.want {
			t.Errorf("%s says %q", r.path, got)
		}
	}
}

func TestAnEngineThatNobodyCanOperateSaysWhy(t *testing.T) {
	c, _ := reloading("")
	c.NoControl = func() error { return errors.New("/run has mode 1777") }
	s := server(t, c)
	r := request{method: http.MethodPost, path: "/v1/reload"}.do(s)
	if r.Code != http.StatusForbidden || !strings.Contains(r.Body.String(), "no token_file, and no control socket: /run has mode 1777") {
		t.Errorf("got %d, %s", r.Code, r.Body)
	}
}

func TestReloadsBeyondTheLimitAreRejectedAndTheOthersAreNot(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		free := make(chan struct{})
		s := server(t, api.Config{Token: token, Reload: func(ctx context.Context, _ bool) (api.Reload, error) {
			<-free
			return api.Reload{Applied: true}, nil
		}})
		post := request{method: http.MethodPost, path: "/v1/reload", headers: map[string]string{"Authorization": "Bearer " + token}}
		codes := make(chan int)
		for range api.MaxChanges {
			go func() { codes <- post.do(s).Code }()
		}
		synctest.Wait()
		if w := post.do(s); w.Code != http.StatusServiceUnavailable {
			t.Errorf("beyond the limit: status %d", w.Code)
		}
		if w := (request{headers: post.headers}).do(s); w.Code != http.StatusOK {
			t.Errorf("another request: status %d", w.Code)
		}
		close(free)
		for range api.MaxChanges {
			if code := <-codes; code != http.StatusOK {
				t.Errorf("within the limit: status %d", code)
			}
		}
	})
}

func TestAReloadThatDoesNotEndIsNotAwaitedForEver(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		s := server(t, api.Config{Token: token, Reload: func(ctx context.Context, _ bool) (api.Reload, error) {
			<-ctx.Done()
			return api.Reload{}, ctx.Err()
		}})
		start := time.Now()
		w := request{method: http.MethodPost, path: "/v1/reload", headers: map[string]string{"Authorization": "Bearer " + token}}.do(s)
		if w.Code != http.StatusGatewayTimeout || time.Since(start) != api.MaxWait {
			t.Errorf("status %d after %v", w.Code, time.Since(start))
		}
	})
}

// A reload may take longer than other requests.
func TestAReloadIsAnsweredAfterTheTimeoutsOfOtherRequests(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		s := server(t, api.Config{Token: token, Reload: func(ctx context.Context, _ bool) (api.Reload, error) {
			select {
			case <-time.After(2 * api.WriteTimeout):
				return api.Reload{Applied: true}, nil
			case <-ctx.Done():
				return api.Reload{}, errors.New("the client has gone")
			}
		}})
		client, end := pipeClient(t, s)
		defer end()
		if r, err := client.Reload(t.Context(), false); err != nil || !r.Applied {
			t.Errorf("got %+v, %v", r, err)
		}
	})
}

// pipeClient serves s without a network, as synctest requires.
func pipeClient(t *testing.T, s *api.Server) (c *api.Client, end func()) {
	t.Helper()
	conns := make(chan net.Conn)
	l := &pipeListener{conns: conns, closed: make(chan struct{})}
	ctx, cancel := context.WithCancel(t.Context())
	served := make(chan error, 1)
	go func() { served <- s.Serve(ctx, l) }()
	transport := &http.Transport{DialContext: func(context.Context, string, string) (net.Conn, error) {
		ours, theirs := net.Pipe()
		conns <- theirs
		return ours, nil
	}}
	return &api.Client{Base: "http://" + api.DefaultListen, Token: token, HTTP: &http.Client{Transport: transport}}, func() {
		transport.CloseIdleConnections()
		cancel()
		if err := <-served; err != nil {
			t.Error(err)
		}
	}
}

// pipeListener accepts connections within this program.
type pipeListener struct {
	conns  <-chan net.Conn
	closed chan struct{}
	once   sync.Once
}

func (l *pipeListener) Accept() (net.Conn, error) {
	select {
	case c := <-l.conns:
		return c, nil
	case <-l.closed:
		return nil, net.ErrClosed
	}
}

func (l *pipeListener) Close() error {
	l.once.Do(func() { close(l.closed) })
	return nil
}

func (l *pipeListener) Addr() net.Addr { return &net.TCPAddr{IP: net.IPv4(127, 0, 0, 1), Port: 9650} }
