package httpgateway

import (
	"net/http"
	"strings"
	"testing"
	"time"

	"github.com/sonde-probe/sonde/gateway"
	"github.com/sonde-probe/sonde/group"
	"github.com/sonde-probe/sonde/probe"
	"github.com/sonde-probe/sonde/tests/gatewaytest"
	"github.com/sonde-probe/sonde/tests/testsync"
)

// The end of the gateway ends requests that wait, with a status by which clients keep what they
// have.
func TestTheEndEndsRequestsThatWait(t *testing.T) {
	s := gatewaytest.New(t, group.Rule{Port: "80"}, map[string]string{"a": "10.0.0.1"})
	s.Say(map[string]probe.Outcome{"a": probe.Success})
	c := Envoy{Listen: "127.0.0.1:0", Wait: 10 * time.Minute}
	d := c.Output().(*server)
	o := s.Serve(func() gateway.Output { return d })
	present, release, err := d.answer(c.about(0))
	if err != nil {
		t.Fatal(err)
	}
	release()
	status := make(chan int, 1)
	go func() {
		response, err := http.Post(o.URL+"/v3/discovery:endpoints", "application/json", strings.NewReader(`{"version_info":"`+present.version+`"}`))
		if err != nil {
			t.Error(err)
			status <- 0
			return
		}
		response.Body.Close()
		status <- response.StatusCode
	}()
	testsync.Until(t, "the request to wait", func() bool { return d.waiters.Waiting() == 1 })
	if err := o.Gateways.Apply(nil); err != nil {
		t.Fatal(err)
	}
	if got := testsync.Receive(t, "the answer at the end", status); got != http.StatusServiceUnavailable {
		t.Errorf("the status at the end is %d", got)
	}
}
