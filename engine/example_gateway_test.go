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
	"time"

	httpprobe "github.com/sonde-probe/sonde/builtin/http"
	"github.com/sonde-probe/sonde/engine"
	"github.com/sonde-probe/sonde/probe"
)

// probeBackend returns an engine that probes a backend, and the gauge of the backend's
// readiness. README.md shows this function.
func probeBackend(address, port string) (*engine.Engine, *engine.Gauge, error) {
	handler, err := httpprobe.New(httpprobe.Config{Path: "/healthz", Port: port})
	if err != nil {
		return nil, nil, err // names the wrong field
	}
	id := probe.ID{Target: "web", Kind: probe.Readiness}
	e := engine.New(engine.Config{Logger: slog.Default()})
	_, err = e.Apply(probe.Set{id: {Target: probe.Target{Address: address}, Handler: handler, HandlerName: "http"}})
	if err != nil {
		return nil, nil, err // nothing was applied
	}
	e.Report(probe.Instance{Target: "web", ID: "static", Phase: probe.Running, Since: time.Now()})
	ready, _ := e.Watch(id)
	return e, ready, nil
}

// A gateway forwards requests while its backend's readiness probe passes.
func Example_gateway() {
	backend := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		fmt.Fprint(w, "hello from the backend")
	}))
	defer backend.Close()
	address, _ := url.Parse(backend.URL)

	e, ready, err := probeBackend(address.Hostname(), address.Port())
	if err != nil {
		fmt.Println(err)
		return
	}
	proxy := httputil.NewSingleHostReverseProxy(address)
	gateway := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		if !ready.Passing() { // one atomic load
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
	changes := e.Subscribe()
	defer changes.Close()
	for {
		if st, err := changes.Next(ctx); err != nil || st.Verdict == probe.Passing {
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
