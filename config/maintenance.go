package config

import (
	"time"

	"github.com/sonde-probe/sonde/config/internal/tree"
	"github.com/sonde-probe/sonde/internal/cron"
	"github.com/sonde-probe/sonde/probe"
)

// Maintenance is what a maintenance block says: nothing is done about some targets at some times. Cron and Timezone are
// as they are written; Windows returns what they say.
type Maintenance struct {
	Members probe.Selector // the targets

	Cron     string        `hcl:"cron" doc:"when the maintenance begins, as in crontab: minute, hour, day of the month, month, day of the week, such as \"0 3 * * 0\" for each Sunday at 3 o'clock"`
	Duration time.Duration `hcl:"duration" doc:"how long it lasts, as it passes" min:"1m" max:"168h"`
	Timezone string        `hcl:"timezone,optional" doc:"time zone of cron, such as \"Europe/Vienna\" or \"UTC\"" default:"that of the machine"`
	Reason   string        `hcl:"reason,optional" doc:"why, for people" default:"none"`
}

// maintenanceBlock is a maintenance block as it is written.
type maintenanceBlock struct {
	Members []string `hcl:"members,optional" doc:"names of targets, in which * stands for any text and ? for one character" default:"all targets that match"`
	Match   []string `hcl:"match,optional" doc:"conditions on labels that all these targets fulfil, such as \"team=shop\" or \"tier!=canary\"" default:"none"`
	Maintenance
}

// Bounds of a maintenance block.
const (
	maxMaintenances      = 1000
	maxMaintenanceReason = 256 // bytes
)

// Windows returns when the maintenance is. An error is a *probe.FieldError.
func (m Maintenance) Windows() (w cron.Windows, err error) {
	w = cron.Windows{Duration: m.Duration}
	if w.Begin, err = cron.Parse(m.Cron); err != nil {
		return w, &probe.FieldError{Field: "cron", Problem: err.Error(), Hint: `each Sunday at 3 o'clock is "0 3 * * 0"`}
	}
	if w.In, err = cron.Location(m.Timezone); err != nil {
		return w, &probe.FieldError{Field: "timezone", Problem: err.Error(), Hint: cron.LocationHint}
	}
	return w, nil
}

// decodeMaintenances decodes the maintenance blocks, and checks their members.
func decodeMaintenances(blocks []*tree.Block, e *evaluator, s *compiledSchema, targets *knownTargets) map[string]Maintenance {
	var valid []selection
	all, complete := decodeNamed(blocks, e.collector, "maintenance", maxMaintenances, func(b *tree.Block) (Maintenance, bool) {
		d := decodedMaintenance{decodedBlock: s.decode(e, b)}
		m, ok := d.maintenance()
		if ok {
			valid = append(valid, selection{d.decodedBlock, "members", d.Members, d.Match, m.Members})
		}
		return m, ok
	})
	if complete {
		checkSelections(valid, targets)
	}
	return all
}

// decodedMaintenance is a maintenance block.
type decodedMaintenance struct {
	*decodedBlock
	maintenanceBlock
}

// maintenance returns what the block says, and whether it is valid apart from which members it has.
func (d *decodedMaintenance) maintenance() (m Maintenance, ok bool) {
	if !d.ok {
		return m, false
	}
	before := d.e.reports
	d.fill(&d.maintenanceBlock)
	m = d.Maintenance
	if m.Members, ok = d.selectMembers(d.Members, d.Match, "maintenance"); !ok {
		return m, false
	}
	if len(m.Reason) > maxMaintenanceReason {
		d.refuse("reason", "is longer than %d bytes", maxMaintenanceReason)
	}
	windows, err := m.Windows()
	d.reportErrors(err)
	if err == nil && d.e.reports == before {
		d.checkWindows(windows)
	}
	return m, d.e.reports == before
}

// checkWindows reports a maintenance that never begins, and one that never ends.
func (d *decodedMaintenance) checkWindows(w cron.Windows) {
	anyTime := time.Date(2026, 1, 1, 0, 0, 0, 0, time.UTC)
	switch problem, ofDuration := w.Fault(anyTime); {
	case ofDuration:
		d.refuse("duration", "%s", problem)
	case problem != "":
		d.refuse("cron", "%s", problem)
	}
}
