package api_test

import (
	"encoding/json"
	"net/http"
	"strings"
	"testing"

	"github.com/sonde-probe/sonde/api"
)

func TestUptimeIsAboutAFewTargets(t *testing.T) {
	s := server(t, api.Config{Engine: probed(t, 3)})
	var list api.UptimeList
	w := request{path: "/v1/uptime?target=shop/web-000001&target=none&target=shop/web-000000"}.do(s)
	if err := json.Unmarshal(w.Body.Bytes(), &list); err != nil {
		t.Fatal(err)
	}
	if len(list.Uptimes) != 2 || list.Uptimes[0].Target != "shop/web-000001" || len(list.Uptimes[0].Spans) == 0 || list.Uptimes[0].Spans[0].State != "unknown" {
		t.Errorf("got %s", w.Body)
	}
	for _, query := range []string{"", "?target", "?name=x&target=shop/web-000000", "?" + strings.Repeat("target=x&", 65), "?target=%zz", "?latency=true", "?target=x&latency=1"} {
		if w := (request{path: "/v1/uptime" + query}).do(s); w.Code != http.StatusBadRequest && query != "?target" {
			t.Errorf("%q: status %d", query, w.Code)
		}
	}
}
