package api_test

import (
	"net/http"
	"strconv"
	"testing"
	"testing/synctest"
	"time"

	"github.com/sonde-probe/sonde/api"
	"github.com/sonde-probe/sonde/engine"
	"github.com/sonde-probe/sonde/group"
)

// The time limit for sending a request does not apply to the response.
func TestARequestWaitsForAChangeAsLongAsItAsks(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		e := engine.New(engine.Config{})
		groups := group.New(group.Config{Engine: e})
		if err := groups.Apply(map[string]group.Rule{"all": {}}); err != nil {
			t.Fatal(err)
		}
		p, end := servePipes(t, api.Config{Engine: e, Groups: groups})
		version := strconv.FormatUint(groups.Get("all").View().Version, 10)
		began := time.Now()
		if got := p.ask(t, "/v1/groups/all?wait=59s&version="+version); got != http.StatusOK || time.Since(began) != 59*time.Second {
			t.Errorf("status %d after %v", got, time.Since(began))
		}
		end()
	})
}
