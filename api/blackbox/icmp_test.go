package blackbox_test

import (
	"strings"
	"testing"

	"github.com/sonde-probe/sonde/api/blackbox"
	icmpprobe "github.com/sonde-probe/sonde/builtin/icmp"
	"github.com/sonde-probe/sonde/engine"
)

func TestHostsAreProbedByICMP(t *testing.T) {
	if err := icmpprobe.Permission(); err != nil {
		t.Skip(err)
	}
	h, err := icmpprobe.New(icmpprobe.Config{})
	if err != nil {
		t.Fatal(err)
	}
	e := &fakeEngine{targets: map[string]engine.TargetStatus{"router": {Address: "127.0.0.9"}}}
	s := serverOf(t, e, map[string]blackbox.Module{"icmp": {Handler: h, HandlerName: "icmp", Allow: []string{"127.0.0.1", "127.0.0.2:80"}}})
	for target, want := range map[string]string{
		"127.0.0.1":    "\nprobe_success 1\n",
		"router":       "\nprobe_success 1\n",
		"127.0.0.1:80": "must be a host without a port",
		"http://a":     "must be a host without a port",
		"127.0.0.2":    "is not allowed",
		"127.0.0.3":    "is not allowed",
	} {
		status, body := ask(s, "module=icmp&target="+target)
		isMetrics := strings.Contains(want, "probe_success")
		if !strings.Contains(body, want) || (status == 200) != isMetrics {
			t.Errorf("%s: %d %s, want %q", target, status, body, want)
		}
		for _, metric := range []string{`probe_icmp_duration_seconds{phase="resolve"} 0`, `probe_icmp_duration_seconds{phase="rtt"} `, `probe_icmp_duration_seconds{phase="setup"} `, "probe_icmp_reply_hop_limit ", "probe_ip_protocol 4"} {
			if isMetrics && !strings.Contains(body, "\n"+metric) {
				t.Errorf("%s lacks %s:\n%s", target, metric, body)
			}
		}
	}
}
