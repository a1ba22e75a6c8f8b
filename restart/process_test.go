package restart_test

import (
	"context"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"github.com/sonde-probe/sonde/probe"
	"github.com/sonde-probe/sonde/restart"
	"github.com/sonde-probe/sonde/restart/process"
	"github.com/sonde-probe/sonde/tests/testsync"
	"github.com/sonde-probe/sonde/tests/tier"
)

func TestRealProcessIsRestarted(t *testing.T) {
	tier.Slow(t)
	dir := t.TempDir()
	failing := filepath.Join(dir, "failing")
	d, err := process.New(process.Config{
		Target: "web", Dir: dir, // the first instance fails once it has its trap
		Command: []string{"/bin/sh", "-c", `trap 'rm failing; echo bye; exit 7' TERM; mkdir begun && echo >failing; while :; do sleep 0.01; done`},
	})
	if err != nil {
		t.Fatal(err)
	}
	h := newHarness(t, restart.Budget{})
	web := probe.HandlerFunc(func(context.Context, probe.Target) probe.Result {
		if _, err := os.Stat(failing); err == nil {
			return probe.Fail("test.failing", "it fails")
		}
		return probe.Succeed("")
	})
	h.probes(map[string]probe.Handler{"web": web})
	if err := h.control.Apply(only(d)); err != nil {
		t.Fatal(err)
	}
	ctx, stop := context.WithCancel(t.Context())
	defer stop()
	go func() { _ = h.engine.Run(t.Context()) }()
	go func() { h.ended <- h.control.Run(ctx) }()

	defer func() {
		if t.Failed() {
			t.Logf("%+v\n%s", h.instance("web"), h.log)
		}
	}()
	testsync.Until(t, "a second instance", func() bool {
		in := h.instance("web")
		return in.Restarts == 1 && in.Phase == probe.Running && in.Reason == ""
	})
	if in := h.instance("web"); !strings.HasPrefix(in.Detail, "liveness failed (test.failing), exit status") {
		t.Errorf("got %+v", in)
	}
	stop()
	testsync.Until(t, "the end", func() bool { return h.instance("web").Phase == probe.Gone })
	if err := <-h.ended; err != nil {
		t.Error(err)
	}
}
