package engine_test

import (
	"context"
	"fmt"
	"io"
	"log/slog"
	"net/http"
	"net/http/httptest"
	"net/http/httputil"
	"net/url"

	httpprobe "github.com/sonde-probe/sonde/builtin/http"
	"github.com/sonde-probe/sonde/engine"
	"github.com/sonde-probe/sonde/probe"
)

// probeBackend returns an engine that probes a backend, and the backend's gauge. docs/embedding.md
// shows this function.
func probeBackend(address, port string) (*engine.Engine, *engine.TargetGauge, error) {
	handler, err := httpprobe.New(httpprobe.Config{Path: "/healthz", Port: port})
	if err != nil {
		return nil, nil, err // names the invalid field
	}
	id := probe.ID{Target: "web", Kind: probe.Readiness}
	e := engine.New(engine.Config{Logger: slog.Default()})
	target := probe.Target{Address: address, Static: true} // no driver reports its restarts
	_, err = e.Apply(probe.Set{id: {Target: target, Handler: handler, HandlerName: "http"}})
	if err != nil {
		return nil, nil, err // nothing was applied
	}
	backend, _ := e.WatchTarget("web")
	return e, backend, nil
}

// A gateway forwards requests while its backend accepts them, and reports failed ones to the engine.
func Example_gateway() {
	server := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		fmt.Fprint(w, "hello from the backend")
	}))
	defer server.Close()
	address, _ := url.Parse(server.URL)

	e, backend, err := probeBackend(address.Hostname(), address.Port())
	if err != nil {
		fmt.Println(err)
		return
	}
	proxy := httputil.NewSingleHostReverseProxy(address)
	id := probe.ID{Target: "web", Kind: probe.Readiness}
	proxy.ModifyResponse = func(*http.Response) error {
		e.Observe(id, probe.Observation{Outcome: probe.Success})
		return nil
	}
	proxy.ErrorHandler = func(w http.ResponseWriter, _ *http.Request, err error) {
		e.Observe(id, probe.Observation{Outcome: probe.Failure, Detail: err.Error()})
		w.WriteHeader(http.StatusBadGateway)
	}
	gateway := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		if !backend.Gateway().TakesRequests() { // one atomic load
			http.Error(w, "no backend is ready", http.StatusServiceUnavailable)
			return
		}
		proxy.ServeHTTP(w, r)
	}))
	defer gateway.Close()
	get := func() {
		resp, err := http.Get(gateway.URL)
		if err != nil {
			fmt.Println(err)
			return
		}
		defer resp.Body.Close()
		body, _ := io.ReadAll(resp.Body)
		fmt.Println(resp.StatusCode, string(body))
	}
	get() // the probe has not passed yet
	ctx, stop := context.WithCancel(context.Background())
	ended := make(chan error)
	go func() { ended <- e.Run(ctx) }()
	changes := e.SubscribeTargets()
	defer changes.Close()
	for {
		if st, err := changes.Next(ctx); err != nil || st.Gateway.TakesRequests() {
			break
		}
	}
	get()
	stop()
	<-ended
	// Output:
	// 503 no backend is ready
	//
	// 200 hello from the backend
}
