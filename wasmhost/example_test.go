package wasmhost_test

import (
	"context"
	"fmt"
	"os"
	"time"

	"github.com/sonde-probe/sonde/probe"
	"github.com/sonde-probe/sonde/wasmhost"
)

func ExampleLoad() {
	module, err := os.ReadFile("redis.wasm")
	if err != nil {
		fmt.Println(err)
		return
	}
	plugin, err := wasmhost.Load(wasmhost.Config{Module: module, Limits: wasmhost.Limits{Memory: 16 << 20}})
	if err != nil {
		fmt.Println(err)
		return
	}
	defer plugin.Close(context.Background())

	ctx, cancel := context.WithTimeout(context.Background(), 10*time.Second)
	defer cancel()
	if err := plugin.Wait(ctx); err != nil { // otherwise attempts are Unknown until it is compiled
		fmt.Println(err)
		return
	}
	handler, err := plugin.New(map[string]any{"port": "redis", "max_lag": 5 * time.Second})
	if err != nil {
		fmt.Println(err)
		return
	}
	defer handler.Close()
	result := handler.Probe(ctx, probe.Target{Name: "shop/cache", Address: "10.0.0.7", Ports: map[string]uint16{"redis": 6379}})
	fmt.Println(result.Outcome, result.Reason, result.Detail)
}
