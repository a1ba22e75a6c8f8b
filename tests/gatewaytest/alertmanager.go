package gatewaytest

import (
	"encoding/json"
	"fmt"
	"net/http"
	"path/filepath"
	"testing"
	"time"

	"github.com/sonde-probe/sonde/tests/tier"
)

// Alertmanager is a real Alertmanager.
type Alertmanager struct {
	*Process
	URL string
	t   testing.TB
}

// Alert is an alert as returned by Alertmanager.
type Alert struct {
	Labels       map[string]string `json:"labels"`
	Annotations  map[string]string `json:"annotations"`
	StartsAt     time.Time         `json:"startsAt"`
	EndsAt       time.Time         `json:"endsAt"`
	GeneratorURL string            `json:"generatorURL"`
}

// StartAlertmanager starts an Alertmanager on a free port of this machine, with a configuration, by default without receivers. It
// is killed when the test ends. The test runs only in .ci/run.
func StartAlertmanager(t testing.TB, config string) *Alertmanager {
	t.Helper()
	tier.Needs(t, "prometheus-alertmanager")
	dir, address := t.TempDir(), FreeAddress(t)
	if config == "" {
		config = "route: {receiver: none}\nreceivers: [{name: none}]\n"
	}
	file := WriteFile(t, dir, "alertmanager.yml", config)
	a := &Alertmanager{URL: "http://" + address, t: t}
	ready := func() bool {
		response, err := http.Get(a.URL + "/-/ready")
		if err != nil {
			return false
		}
		response.Body.Close()
		return response.StatusCode == http.StatusOK
	}
	a.Process = Start(t, ready, "prometheus-alertmanager", "--config.file="+file, "--storage.path="+filepath.Join(dir, "data"),
		"--web.listen-address="+address, "--cluster.listen-address=", "--log.level=warn")
	return a
}

// Active returns the active alerts, by their label target or, for a group, group.
func (a *Alertmanager) Active() map[string]Alert {
	a.t.Helper()
	response, err := http.Get(a.URL + "/api/v2/alerts")
	if err != nil {
		a.t.Fatal(err)
	}
	defer response.Body.Close()
	var all []Alert
	if err := json.NewDecoder(response.Body).Decode(&all); err != nil {
		a.t.Fatal(fmt.Errorf("%s: %w", response.Status, err))
	}
	active := map[string]Alert{}
	for _, one := range all {
		active[one.Labels["target"]+one.Labels["group"]] = one
	}
	return active
}
