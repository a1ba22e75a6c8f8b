package engine_test

import (
	"context"
	"fmt"
	"time"

	"github.com/sonde-probe/sonde/engine"
	"github.com/sonde-probe/sonde/probe"
)

// A gateway probes its backends, and checks for each request whether a backend passes.
func Example() {
	id := probe.ID{Target: "web", Kind: probe.Readiness}
	e := engine.New(engine.Config{})
	_, err := e.Apply(probe.Set{id: {
		Rule:        probe.Rule{Period: 5 * time.Second},
		Target:      probe.Target{Address: "127.0.0.1", Static: true},
		HandlerName: "greet",
		Handler: probe.HandlerFunc(func(_ context.Context, t probe.Target) probe.Result {
			return probe.Succeed("hello from " + t.Address)
		}),
	}})
	if err != nil {
		fmt.Println(err) // names the probe and the field; nothing was applied
	}

	changes := e.Subscribe()
	defer changes.Close()
	ctx, stop := context.WithTimeout(context.Background(), time.Minute)
	ended := make(chan error)
	go func() { ended <- e.Run(ctx) }()

	gauge, _ := e.Watch(id) // keep it: Passing is one atomic load
	for !gauge.Passing() {
		if _, err := changes.Next(ctx); err != nil {
			fmt.Println(err)
			break
		}
	}
	st, _ := e.Status(id)
	fmt.Println(st.ID, st.Verdict, st.Result.Detail)
	stop()
	fmt.Println("ended:", <-ended)
	// Output:
	// web:readiness passing hello from 127.0.0.1
	// ended: <nil>
}

// Once makes an attempt without an engine, as `sonde probe` does.
func ExampleOnce() {
	res := engine.Once(context.Background(), probe.Probe{
		Rule: probe.Rule{Kind: probe.Liveness},
		Handler: probe.HandlerFunc(func(context.Context, probe.Target) probe.Result {
			return probe.Fail("coffee.empty", "no coffee left")
		}),
	})
	fmt.Println(res.Outcome, res.Reason, res.Detail)
	// Output: failure coffee.empty no coffee left
}

// Two sites of a proxy share an engine. Each changes only its own probes.
func ExampleEngine_Owner() {
	e := engine.New(engine.Config{})
	handler := probe.HandlerFunc(func(context.Context, probe.Target) probe.Result { return probe.Succeed("") })
	id := probe.ID{Target: "web", Kind: probe.Readiness}
	web := probe.Probe{Handler: handler, Revision: "1", Target: probe.Target{Static: true}}

	shop, blog := e.Owner("shop"), e.Owner("blog")
	_, err := shop.Change(engine.Change{Set: probe.Set{id: web}, All: true})
	fmt.Println(err)
	_, err = blog.Change(engine.Change{Set: probe.Set{id: web}, All: true})
	fmt.Println(err)

	// The configuration of the shop is reloaded: unchanged probes continue.
	reloaded := e.Owner("shop")
	changes, err := reloaded.Change(engine.Change{Set: probe.Set{id: web, {Target: "cart", Kind: probe.Readiness}: web}, All: true})
	shop.Close() // no effect: superseded by reloaded
	fmt.Println(changes.Kept, changes.Added, err)
	// Output:
	// <nil>
	// probe "web:readiness": belongs to owner "shop", not to owner "blog"
	// 1 1 <nil>
}
