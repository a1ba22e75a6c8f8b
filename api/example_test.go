package api_test

import (
	"context"
	"fmt"
	"time"

	"github.com/sonde-probe/sonde/api"
	"github.com/sonde-probe/sonde/engine"
	"github.com/sonde-probe/sonde/probe"
)

func Example() {
	ctx, cancel := context.WithTimeout(context.Background(), 30*time.Second)
	defer cancel()

	e := engine.New(engine.Config{})
	web := probe.ID{Target: "shop/web", Kind: probe.Readiness}
	handler := probe.HandlerFunc(func(context.Context, probe.Target) probe.Result { return probe.Succeed("") })
	if _, err := e.Apply(probe.Set{web: {Handler: handler, HandlerName: "always"}}); err != nil {
		fmt.Println(err)
		return
	}

	server, err := api.New(api.Config{Engine: e, Listen: "127.0.0.1:0"})
	if err != nil {
		fmt.Println(err)
		return
	}
	listener, err := server.Listen(ctx)
	if err != nil {
		fmt.Println(err)
		return
	}
	served := make(chan error, 1)
	go func() { served <- server.Serve(ctx, listener) }()

	client := api.Client{Base: "http://" + listener.Addr().String()}
	target, err := client.Target(ctx, "shop/web")
	fmt.Println(target.Name, target.Instance.Phase, err)
	for _, p := range target.Probes {
		fmt.Println(p.Kind, p.Handler, p.Verdict, p.Progress)
	}
	_, err = client.Target(ctx, "shop/db")
	fmt.Println(err)

	cancel()
	fmt.Println(<-served)
	// Output:
	// shop/web absent <nil>
	// readiness always undecided 0/1
	// 404: there is no target "shop/db"
	// <nil>
}
