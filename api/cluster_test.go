package api_test

import (
	"net/http"
	"net/http/httptest"
	"strings"
	"testing"

	"github.com/sonde-probe/sonde/api"
	"github.com/sonde-probe/sonde/engine"
)

func TestAnEngineSaysWithWhichOthersItSharesTargets(t *testing.T) {
	known := api.Cluster{Name: "a", Member: true, Allowed: true, LeaseSeconds: 4.5, Shards: 4096, ShardCount: 4096, Targets: 3, Owned: 3, Zone: "eu-1", Polls: 2, Gray: 1, Doubt: api.DoubtAlone}
	for name, c := range map[string]struct {
		cluster func() api.Cluster
		status  int
		want    string
	}{
		"none":      {nil, http.StatusNotFound, `has no cluster block`},
		"of others": {func() api.Cluster { return known }, http.StatusOK, `"leaseSeconds":4.5,"shards":4096,"shardCount":4096,"targets":3,"owned":3,"zone":"eu-1","polls":2,"gray":1,"doubt":"alone","members":[],"drains":[]}`},
	} {
		h, err := api.New(api.Config{Engine: engine.New(engine.Config{}), Cluster: c.cluster})
		if err != nil {
			t.Fatal(err)
		}
		r := httptest.NewRecorder()
		h.ServeHTTP(r, httptest.NewRequest(http.MethodGet, "http://127.0.0.1/v1/cluster", nil))
		if r.Code != c.status || !strings.Contains(r.Body.String(), c.want) {
			t.Errorf("%s: status %d, %s", name, r.Code, r.Body)
		}
	}
}
