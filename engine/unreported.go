package engine

import (
	"context"
	"log/slog"
	"strings"
	"time"
)

const (
	// reportGrace is how long after the start of Run a target may have probes without a reported instance before the engine warns
	// about it.
	reportGrace = 10 * time.Second

	// maxUnreportedNames is the maximum number of names in the warning.
	maxUnreportedNames = 3
)

// warnOfUnreported logs one warning about the targets that have probes but no reported instance.
func (r *registry) warnOfUnreported(ctx context.Context, log *slog.Logger) {
	select {
	case <-ctx.Done():
		return
	case <-time.After(reportGrace):
	}
	count, names := 0, []string(nil)
	for t := range r.walk(ctx, "") {
		if t.target.isReported() || len(t.slots) == 0 {
			continue
		}
		if count++; count <= maxUnreportedNames {
			names = append(names, t.target.name)
		}
	}
	if count > len(names) {
		names = append(names, "…")
	}
	if count > 0 {
		log.Warn("targets not probed: no instance was reported (see Engine.Report and probe.Target.Static)",
			"count", count, "targets", strings.Join(names, ", "))
	}
}
