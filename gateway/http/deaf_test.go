package httpgateway_test

import (
	"maps"
	"slices"
	"strconv"
	"testing"

	"github.com/sonde-probe/sonde/group"
	"github.com/sonde-probe/sonde/probe"
	"github.com/sonde-probe/sonde/tests/gatewaytest"
	"github.com/sonde-probe/sonde/tests/tier"
)

// Clients that follow a large group, and do not read what they are told, share one answer.
func TestClientsThatDoNotReadShareAnAnswer(t *testing.T) {
	tier.CI(t)
	const clients, most = 400, 48 << 20
	members := gatewaytest.Members(3001)
	s := gatewaytest.New(t, group.Rule{Port: "http"}, members)
	all := map[string]probe.Outcome{}
	for name := range members {
		all[name] = probe.Success
	}
	s.Say(all)
	o := startConsul(s)
	const path = "/v1/health/service/web"
	index := mustGet(t, o.URL+path+"?tag=other").index // an answer that takes no memory
	before := gatewaytest.LiveHeap()
	waiting := gatewaytest.Ask(t, clients, o.URL, "GET "+path+"?wait=10m&index="+strconv.FormatUint(index, 10)+" HTTP/1.1\r\nHost: localhost\r\n\r\n")
	s.Say(map[string]probe.Outcome{slices.Sorted(maps.Keys(members))[0]: probe.Failure})
	if others := waiting.Answered(); others > 0 {
		t.Errorf("%d clients have another status than 200", others)
	}
	if used := gatewaytest.LiveHeap() - before; used > most {
		t.Errorf("%d clients that do not read hold %d MiB, want %d MiB at most", clients, used>>20, most>>20)
	}
}
