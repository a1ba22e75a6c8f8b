package httpprobe_test

import (
	"context"
	"fmt"
	"net/http"
	"net/http/httptest"
	"net/netip"
	"time"

	httpprobe "github.com/sonde-probe/sonde/builtin/http"
	"github.com/sonde-probe/sonde/probe"
)

func ExampleNew() {
	server := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		w.WriteHeader(http.StatusServiceUnavailable)
	}))
	defer server.Close()
	at := netip.MustParseAddrPort(server.Listener.Addr().String())

	handler, err := httpprobe.New(httpprobe.Config{Path: "/healthz", Port: "web"})
	if err != nil {
		fmt.Println(err)
		return
	}
	ctx, cancel := context.WithTimeout(context.Background(), 10*time.Second)
	defer cancel()
	result := handler.Probe(ctx, probe.Target{
		Name:    "shop/web",
		Address: at.Addr().String(),
		Ports:   map[string]uint16{"web": at.Port()},
	})
	fmt.Println(result.Outcome, result.Reason, result.Detail)
	// Output: failure http.status status 503 of /healthz, want 200-399
}

func ExampleNew_wrong() {
	_, err := httpprobe.New(httpprobe.Config{Port: "80", Status: []string{"200-"}})
	fmt.Println(err)
	// Output: status has "200-"; it must be a status such as "204" or a range such as "200-399", from 100 to 599
}
