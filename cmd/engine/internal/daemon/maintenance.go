package daemon

import (
	"fmt"

	"github.com/sonde-probe/sonde/api"
	"github.com/sonde-probe/sonde/api/metrics"
	"github.com/sonde-probe/sonde/config"
	"github.com/sonde-probe/sonde/pause"
	"github.com/sonde-probe/sonde/probe"
	"github.com/sonde-probe/sonde/restart"
)

// maintenances returns what the maintenance blocks of a configuration say. There is an error if the
// machine has lost a time zone since they were checked.
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

// labelsOf returns the labels of all targets, as far as their probes have them.
func labelsOf(set probe.Set, units map[string]restart.Unit) map[string]map[string]string {
	labels := make(map[string]map[string]string, len(units))
	for target := range units {
		labels[target] = nil
	}
	for id, p := range set {
		labels[id.Target] = p.Target.Labels
	}
	return labels
}

// shownMaintenances returns when maintenances are, for the API.
func shownMaintenances(k *pause.Keeper) []api.Maintenance {
	var all []api.Maintenance
	for _, m := range k.Maintenances() {
		all = append(all, api.Maintenance{Name: m.Name, Active: m.Active, From: m.From, To: m.To, Reason: m.Why, Targets: m.Targets})
	}
	return all
}

// maintenanceStats returns what metrics show of them.
func maintenanceStats(k *pause.Keeper) []metrics.Maintenance {
	var all []metrics.Maintenance
	for _, m := range k.Maintenances() {
		all = append(all, metrics.Maintenance{Name: m.Name, Active: m.Active, Targets: m.Targets})
	}
	return all
}
