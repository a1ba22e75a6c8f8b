package api_test

import (
	"context"
	"flag"
	"fmt"
	"net"
	"net/http"
	"runtime"
	"syscall"
	"testing"
	"time"

	"github.com/sonde-probe/sonde/api"
	beatprobe "github.com/sonde-probe/sonde/builtin/beat"
	"github.com/sonde-probe/sonde/engine"
	"github.com/sonde-probe/sonde/probe"
)

var scale = flag.Duration("scale", 0, "measure 100,000 targets with a beat a minute for so long, by each transport")

// manyTargets is the number of targets in TestBeatsOfManyTargets.
const manyTargets = 100_000

// TestBeatsOfManyTargets measures an engine whose targets send one beat a minute each, from this process: docs/beats.md
// has the output.
func TestBeatsOfManyTargets(t *testing.T) {
	if *scale == 0 {
		t.Skip("give -scale 2m")
	}
	begin := heap()
	r, e := beatprobe.NewRegistry(), engine.New(engine.Config{})
	set, names, tokens := probe.Set{}, make([]string, manyTargets), make([]string, manyTargets)
	for i := range manyTargets {
		names[i], tokens[i] = fmt.Sprintf("worker-%06d", i), fmt.Sprintf("token-of-the-worker-%06d-%04x", i, i*7919)
		h, err := r.New(beatprobe.Config{Every: time.Minute, Token: tokens[i]})
		if err != nil {
			t.Fatal(err)
		}
		set[probe.ID{Target: names[i], Kind: probe.Liveness}] = probe.Probe{Handler: h, Target: probe.Target{Static: true}}
	}
	before := heap()
	r.Apply(set)
	t.Logf("memory: %d bytes a target for its beats", (heap()-before)/manyTargets)
	if _, err := e.Apply(set); err != nil {
		t.Fatal(err)
	}
	clear(set)
	t.Logf("memory: %d bytes a target in all, with its probe, name and token", (heap()-begin)/manyTargets)

	ctx, stop := context.WithCancel(t.Context())
	running := make(chan error, 3)
	go func() { running <- e.Run(ctx) }()
	go func() { r.Run(ctx); running <- nil }()
	alone := processorTime(t, func() { time.Sleep(*scale) })
	t.Logf("attempts alone, each %v: %.1f%% of a core", probe.DefaultPeriod, 100*alone.Seconds()/scale.Seconds())
	measure := func(way string, send func(i int)) {
		sent := 0
		used := processorTime(t, func() { sent = sendEvenly(send) }) - alone
		each := used / time.Duration(sent)
		t.Logf("beats by %s: %v of a core each with their senders, for %d beats; %.1f%% of a core for %d a minute", way, each, sent, 100*each.Minutes()*manyTargets, manyTargets)
	}

	rc, err := r.Listen(ctx, "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	go func() { r.Receive(ctx, rc); running <- nil }()
	conn, err := net.Dial("udp", rc.LocalAddr().String())
	if err != nil {
		t.Fatal(err)
	}
	measure("UDP", func(i int) {
		if _, err := conn.Write(beatprobe.AppendDatagram(nil, names[i], tokens[i], time.Now(), beatprobe.Report{Status: beatprobe.OK})); err != nil {
			t.Fatal(err)
		}
	})

	s, err := api.New(api.Config{Engine: e, Beats: r, Listen: "127.0.0.1:0"})
	if err != nil {
		t.Fatal(err)
	}
	l, err := s.Listen(ctx)
	if err != nil {
		t.Fatal(err)
	}
	go func() { running <- s.Serve(ctx, l) }()
	client := api.Client{Base: "http://" + l.Addr().String(), HTTP: &http.Client{Transport: &http.Transport{DisableKeepAlives: true}}}
	measure("HTTP, each with a connection of its own,", func(i int) {
		c := client
		c.Token = tokens[i]
		if _, err := c.Beat(ctx, names[i], "ok", ""); err != nil {
			t.Fatal(err)
		}
	})
	t.Logf("counted %+v", r.Stats())
	runtime.KeepAlive(tokens)
	stop()
	for range 4 {
		if err := <-running; err != nil {
			t.Error(err)
		}
	}
}

// sendEvenly calls send for the targets in turn, so that each sends one beat a minute, or less on a machine that is too
// slow for that. It returns the number of calls.
func sendEvenly(send func(i int)) (sent int) {
	const gap = time.Minute / manyTargets
	for begin := time.Now(); time.Since(begin) < *scale && time.Duration(sent)*gap < *scale; sent++ {
		time.Sleep(time.Until(begin.Add(time.Duration(sent) * gap)))
		send(sent % manyTargets)
	}
	return sent
}

// heap returns the memory in use.
func heap() uint64 {
	var m runtime.MemStats
	runtime.GC()
	runtime.GC()
	runtime.ReadMemStats(&m)
	return m.HeapAlloc
}

// processorTime returns the processor time that this process uses during a call.
func processorTime(t *testing.T, call func()) time.Duration {
	t.Helper()
	used := func() time.Duration {
		var u syscall.Rusage
		if err := syscall.Getrusage(syscall.RUSAGE_SELF, &u); err != nil {
			t.Fatal(err)
		}
		return time.Duration(u.Utime.Nano() + u.Stime.Nano())
	}
	before := used()
	call()
	return used() - before
}
