package config

import (
	"errors"
	"fmt"
	"time"

	"github.com/sonde-probe/sonde/config/internal/tree"
	"github.com/sonde-probe/sonde/internal/cron"
	"github.com/sonde-probe/sonde/probe"
)

// Maintenance is what a maintenance block says: nothing is done about some targets at some times.
type Maintenance struct {
	Members probe.Selector // the targets

	// Cron and Timezone are as they are written. Windows returns what they say.
	Cron     string
	Duration time.Duration
	Timezone string
	Reason   string
}

// maintenanceBlock is a maintenance block as it is written.
type maintenanceBlock struct {
	Members  []string      `hcl:"members,optional" doc:"names of targets, in which * stands for any text and ? for one character" default:"all targets that match"`
	Match    []string      `hcl:"match,optional" doc:"conditions on labels that all these targets fulfil, such as \"team=shop\" or \"tier!=canary\"" default:"none"`
	Cron     string        `hcl:"cron" doc:"when the maintenance begins, as in crontab: minute, hour, day of the month, month, day of the week, such as \"0 3 * * 0\" for each Sunday at 3 o'clock"`
	Duration time.Duration `hcl:"duration" doc:"how long it lasts, as it passes" min:"1m" max:"168h"`
	Timezone string        `hcl:"timezone,optional" doc:"time zone of cron, such as \"Europe/Vienna\" or \"UTC\"" default:"that of the machine"`
	Reason   string        `hcl:"reason,optional" doc:"why, for people" default:"none"`
}

// Bounds of a maintenance block.
const (
	MaxMaintenances        = 1000
	MinMaintenanceDuration = time.Minute
	MaxMaintenanceDuration = 7 * 24 * time.Hour
	MaxMaintenanceReason   = 256
)

// Windows returns when the maintenance is. An error is a *probe.FieldError.
func (m Maintenance) Windows() (w cron.Windows, err error) {
	w = cron.Windows{Duration: m.Duration, In: time.Local}
	if w.Begin, err = cron.Parse(m.Cron); err != nil {
		return w, &probe.FieldError{Field: "cron", Problem: err.Error(), Hint: `each Sunday at 3 o'clock is "0 3 * * 0"`}
	}
	if m.Timezone == "" {
		return w, nil
	}
	if w.In, err = time.LoadLocation(m.Timezone); err != nil {
		return w, &probe.FieldError{
			Field: "timezone", Problem: fmt.Sprintf("is %.80q, which this machine does not know", m.Timezone),
			Hint: `write a name such as "Europe/Vienna"; the package tzdata has all of them`,
		}
	}
	return w, nil
}

// maintenances decodes the maintenance blocks, and checks their members: the targets are known.
func (l *loader) maintenances() {
	var all []decodedGroup
	complete := l.namedBlocks("maintenance", "maintenance", MaxMaintenances, func(name string, b *tree.Block) {
		d := l.decodeBlock(b, l.schemas.maintenance)
		if m, ok := l.maintenance(d); ok {
			l.config.Maintenances[name] = m.Maintenance
			all = append(all, decodedGroup{decodedBlock: d, groupBlock: groupBlock{Members: m.written.Members, Match: m.written.Match}, group: Group{Members: m.Members}})
		}
	})
	if complete && len(all) > 0 && !l.options.MoreTargets {
		l.checkMembers(all)
	}
}

// decodedMaintenance is a valid maintenance, and how it is written.
type decodedMaintenance struct {
	Maintenance
	written maintenanceBlock
}

// maintenance decodes a maintenance, and reports whether it is valid apart from which members it has.
func (l *loader) maintenance(d *decodedBlock) (m decodedMaintenance, ok bool) {
	before := l.reports
	w := &m.written
	l.fill(d, w)
	if !d.ok || l.reports != before {
		return m, false
	}
	if m.Members, ok = l.selector(d, w.Members, w.Match, "maintenance"); !ok {
		return m, false
	}
	m.Cron, m.Duration, m.Timezone, m.Reason = w.Cron, w.Duration, w.Timezone, w.Reason
	if m.Duration < MinMaintenanceDuration || m.Duration > MaxMaintenanceDuration {
		l.refuse(d, "duration", fmt.Sprintf("is %v; it must be from %v to %v", m.Duration, MinMaintenanceDuration, MaxMaintenanceDuration))
	}
	if len(m.Reason) > MaxMaintenanceReason {
		l.refuse(d, "reason", fmt.Sprintf("is longer than %d bytes", MaxMaintenanceReason))
	}
	windows, err := m.Windows()
	l.reportErrors(d, err)
	if err == nil && l.reports == before {
		l.checkWindows(d, windows)
	}
	return m, l.reports == before
}

// checkWindows reports a maintenance that never begins, and one that never ends.
func (l *loader) checkWindows(d *decodedBlock, w cron.Windows) {
	switch w.Fault(time.Date(2026, 1, 1, 0, 0, 0, 0, time.UTC)) { // any time
	case cron.NoWindow:
		l.refuse(d, "cron", "has no day that is in a calendar: the maintenance never begins")
	case cron.Endless:
		l.refuse(d, "duration", fmt.Sprintf("is %v, so that the next maintenance begins before one has ended: the targets would be under maintenance for longer than %v days in a row", w.Duration, cron.MaxWindow.Hours()/24))
	case cron.TooJoined:
		l.refuse(d, "duration", fmt.Sprintf("is %v, so that each maintenance begins before the one before has ended, more than %d times in a row: write when the first one begins in cron, and how long all of them take here", w.Duration, cron.MaxJoined))
	}
}

// selector returns the targets that a block selects by members and match, and reports whether they
// are valid. Noun says what the block is.
func (l *loader) selector(d *decodedBlock, members, match []string, noun string) (s probe.Selector, ok bool) {
	if len(members) == 0 && len(match) == 0 {
		l.add(report{
			at: d.block.Header, body: d.block.Parent, summary: fmt.Sprintf("%s %q selects no members", noun, d.block.Label(0)),
			hint: `write members = ["web-*"], or match = ["team=shop"]; all targets are members = ["*"]`,
		})
		return s, false
	}
	s, err := probe.NewSelector(members, match)
	var field *probe.FieldError
	if errors.As(err, &field) {
		argument := map[string]string{"names": "members", "labels": "match"}[field.Field]
		l.add(report{at: d.sources[argument].value, body: &d.block.Body, summary: argument + " " + field.Problem, hint: field.Hint})
		return s, false
	}
	return s, true
}
