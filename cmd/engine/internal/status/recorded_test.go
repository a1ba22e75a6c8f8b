package status

import (
	"testing"

	"github.com/sonde-probe/sonde/api"
	"github.com/sonde-probe/sonde/probe"
)

func TestAProbeWithoutANameIsChosenBesideThoseWithNames(t *testing.T) {
	at := api.Target{Name: "web", Probes: []api.Probe{
		{ID: "web:startup", Kind: probe.Startup}, {ID: "web:readiness", Kind: probe.Readiness},
		{ID: "web:readiness/db", Kind: probe.Readiness}, {ID: "web:liveness/a", Kind: probe.Liveness},
	}}
	for selected, want := range map[string]string{
		"readiness": "web:readiness", "readiness/db": "web:readiness/db", "liveness": "web:liveness/a", "startup": "web:startup", "": "", "other": "",
	} {
		if got, err := chooseProbe(at, selected); got.ID != want || (err != nil) != (want == "") {
			t.Errorf("%q: got %q, %v; want %q", selected, got.ID, err, want)
		}
	}
}
