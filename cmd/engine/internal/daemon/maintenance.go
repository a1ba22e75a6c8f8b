package daemon

import (
	"fmt"

	"github.com/sonde-probe/sonde/api"
	"github.com/sonde-probe/sonde/config"
	"github.com/sonde-probe/sonde/pause"
)

// maintenances returns the maintenances of a configuration. It fails if a time zone is no longer available on this machine
// since the configuration was validated.
func maintenances(c *config.Config) (map[string]pause.Maintenance, error) {
	all := make(map[string]pause.Maintenance, len(c.Maintenances))
	for name, m := range c.Maintenances {
		windows, err := m.Windows()
		if err != nil {
			return nil, fmt.Errorf("maintenance %q: %w", name, err)
		}
		all[name] = pause.Maintenance{Members: m.Members, Windows: windows, Why: m.Reason}
	}
	return all, nil
}

// labelsOf returns the labels of the targets for which isOne reports true.
func labelsOf(c *config.Config, isOne func(target string) bool) map[string]map[string]string {
	labels := map[string]map[string]string{}
	for name, t := range c.Targets {
		if isOne(name) {
			labels[name] = t.Labels
		}
	}
	return labels
}

// shownMaintenances returns the maintenances for the API.
func shownMaintenances(k *pause.Keeper) []api.Maintenance {
	var all []api.Maintenance
	for _, m := range k.Maintenances() {
		all = append(all, api.Maintenance{Name: m.Name, Active: m.Active, From: m.From, To: m.To, Reason: m.Why, Targets: m.Targets})
	}
	return all
}
