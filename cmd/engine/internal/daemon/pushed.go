package daemon

import (
	"context"
	"errors"
	"fmt"
	"io/fs"
	"maps"
	"os"
	"slices"
	"strings"
	"time"

	"github.com/sonde-probe/sonde/agent/store"
	"github.com/sonde-probe/sonde/api"
	"github.com/sonde-probe/sonde/cmd/engine/internal/accepted"
	"github.com/sonde-probe/sonde/cmd/engine/internal/handlers"
	"github.com/sonde-probe/sonde/config"
	"github.com/sonde-probe/sonde/fleet/coord"
	"github.com/sonde-probe/sonde/fleet/revision"
	"github.com/sonde-probe/sonde/restart/process"
)

// ownFiles are the contents of an engine's own configuration files, and of its files with variables.
type ownFiles struct{ sources, files []config.Source }

// parseWith parses the files of the engine together with a revision, which may be nil.
func (s *starter) parseWith(own ownFiles, pushed *accepted.Inputs) loadResult {
	r := loadResult{plugins: s.plugins(), pushed: pushed}
	r.plugins.Inputs = pushed.Clone()
	r.plugins.Inputs.Discovered = maps.Clone(s.found)
	r.config, r.diags = s.parse(slices.Concat(own.sources, r.plugins.Inputs.Sources), own.files, r.plugins)
	return r
}

// read loads the configuration of the files, together with a revision if its targets are pushed to the cluster. If no revision
// is usable, read returns an error unless there is no state to lose or --force is set.
func (s *starter) read() loadResult {
	if s.isOnlyPods(s.paths) {
		return s.parseWith(ownFiles{}, nil)
	}
	sources, files, unread := s.inputs.Read(s.paths)
	own := ownFiles{sources, files}
	alone := s.parseWith(own, nil)
	if unread.HasErrors() {
		alone.diags = unread // without the errors that follow from unread files
	} else {
		alone.diags = append(unread, alone.diags...)
	}
	alone = s.findKept(alone)
	if !unread.HasErrors() && s.kept != nil && alone.config != nil && len(alone.config.Discoveries) > 0 && len(s.kept.Inputs.Discovered) > 0 {
		s.found = s.kept.Inputs.Discovered // until the sources respond
		alone.plugins.Release(nil)
		alone = s.parseWith(own, nil)
	}
	if alone.diags.HasErrors() || !alone.config.Cluster.IsPushed() {
		return alone
	}
	if alone.config.Engine.State == "" {
		return alone.warn("after a start, the engine has no targets until etcd responds: set state in the engine block, so that it keeps the accepted configuration")
	}
	r := s.readPushed(own, alone)
	if !r.diags.HasErrors() {
		return r
	}
	if s.force {
		return s.withoutTargets(alone, r)
	}
	r.diags = append(r.diags, needsPushed(alone.config.Engine.State))
	return r
}

// needsPushed is the error of an engine that has a state file but lacks the pushed configuration.
func needsPushed(state string) config.Diagnostic {
	return config.Diagnostic{
		Summary: fmt.Sprintf("the pushed configuration is unavailable: without it the engine would discard its state in %s and end processes with adopt", state),
		Hint:    "fix the cause and start the engine again; sonde run --force starts it without targets",
	}
}

// readPushed loads the configuration of the files together with a revision: the one that the engine used last, since etcd may
// be unreachable, or else the current one, if the engine has any state to resume from. alone is the configuration of the files.
func (s *starter) readPushed(own ownFiles, alone loadResult) loadResult {
	kept := s.kept.Pushed()
	if kept != nil && !s.kept.Fleet.Is(fleetOf(*alone.config.Cluster)) {
		alone = alone.warn("the pushed configuration in use belongs to another cluster (other endpoints or another prefix): the current revision is needed")
		kept = nil
	}
	r := alone
	if kept != nil {
		if r = s.parseWith(own, kept); !r.diags.HasErrors() {
			return r
		}
		r = r.warn("revision %d of the pushed configuration, which was in use, cannot be used now", kept.Revision.Number)
	} else if !hasState(alone.config.Engine.State) {
		return alone
	}
	current, err := s.currentRevision(*alone.config.Cluster)
	switch {
	case err != nil:
		r.diags = append(r.diags, config.Diagnostic{Summary: fmt.Sprintf("the current revision of the pushed configuration is unknown: %v", err)})
	case current == nil && kept == nil:
		r.isUnpushed = true
	case current != nil && (kept == nil || current.Revision != kept.Revision):
		r.plugins.Release(alone.plugins)
		r = s.parseWith(own, current)
	}
	return r
}

// fleetOf returns the identity of the fleet in a cluster block.
func fleetOf(c config.Cluster) accepted.Fleet {
	return accepted.Fleet{Endpoints: c.Endpoints, Prefix: c.Prefix}
}

// hasState reports whether an earlier engine left a state file that is not empty, or running processes.
func hasState(state string) bool {
	if len(process.RunningIn(handlers.ProcessDir(state))) > 0 {
		return true
	}
	if _, err := os.Stat(state); errors.Is(err, fs.ErrNotExist) {
		return false
	}
	isEmpty, err := store.IsEmpty(state)
	return !isEmpty || err != nil
}

// withoutTargets returns the configuration of the engine's own files alone. The errors of r, the configuration with the pushed
// targets, become warnings. The engine gets targets with the first revision that it can use.
func (s *starter) withoutTargets(alone, r loadResult) loadResult {
	r.plugins.Release(alone.plugins)
	for i := range r.diags {
		r.diags[i].IsWarning = true
	}
	alone.diags, alone.isBare = r.diags, true
	return alone.warn("the engine starts without targets, until it can use the current revision of the pushed configuration")
}

const (
	// revisionTimeout limits how long an engine without a kept revision waits for the cluster's store at its start.
	revisionTimeout = 15 * time.Second

	// revisionPause is the time between two attempts.
	revisionPause = 200 * time.Millisecond
)

// errUnpushed is why an engine continues with the configuration that it accepted last.
var errUnpushed = errors.New("etcd has no revision of the configuration: the engine would have no targets; push one with sonde-fleet push, and start the engine again")

// currentRevision returns the current pushed revision of a cluster, or nil if there is none. It retries while the store is
// unreachable, but not if the store rejects the password.
func (s *starter) currentRevision(c config.Cluster) (*accepted.Inputs, error) {
	from, err := s.openStore(c)
	if err != nil {
		return nil, err
	}
	defer from.Close()
	ctx, cancel := context.WithTimeout(context.Background(), revisionTimeout)
	defer cancel()
	var last error
	for {
		p, err := loadCurrent(ctx, from)
		if !errors.Is(err, coord.ErrUnreachable) && !errors.Is(err, context.DeadlineExceeded) {
			return p, err
		}
		if last == nil || ctx.Err() == nil {
			last = err
		}
		select {
		case <-time.After(revisionPause):
		case <-ctx.Done():
			return nil, fmt.Errorf("etcd does not respond at %s: %w", strings.Join(c.Endpoints, ", "), last)
		}
	}
}

// loadCurrent is one attempt of currentRevision.
func loadCurrent(ctx context.Context, from Store) (*accepted.Inputs, error) {
	seen, err := revision.Read(ctx, from)
	r := seen.Current()
	if err != nil || r.Number == 0 {
		return nil, err
	}
	b, err := revision.Load(ctx, from, r)
	if err != nil {
		return nil, err
	}
	return accepted.OfRevision(r.Ref(), b), nil
}

// openFollower creates the follower of the configuration that is pushed to the cluster.
func (d *daemon) openFollower(c *cluster) {
	if !c.config.IsPushed() {
		return
	}
	var running revision.Ref
	if d.pushed != nil {
		running = d.pushed.Revision
	}
	c.follower = revision.New(revision.Config{
		Coordinator: c.coordinator, Running: running,
		Use: d.useRevision, Outdated: c.setOutdated, Redact: d.queue.Secrets.Text, Logger: d.log,
	})
}

// setOutdated drains this engine, so that the other engines take over its targets. isOutdated is true while this engine has
// refused the revision intended for it and at least half of the engines use that revision.
func (c *cluster) setOutdated(isOutdated bool) {
	c.coordinator.Drain(isOutdated)
	c.setKnown()
}

// useRevision puts a revision into use by a reload. force skips the reload guard. If the engine is stopping, useRevision
// neither uses nor refuses the revision, but waits until ctx is done.
func (d *daemon) useRevision(ctx context.Context, r revision.Revision, b *revision.Bundle, force bool) error {
	asked := d.jobs.request(ctx, &job{trigger: byPush, force: force, pushed: accepted.OfRevision(r.Ref(), b)})
	if errors.Is(asked.err, errStopping) {
		<-ctx.Done()
	}
	switch {
	case asked.err != nil:
		return asked.err
	case asked.reload.Guarded:
		return fmt.Errorf("%s; if this is intended, push with --force, or run sonde reload --force on this engine", asked.reload.Error.Message)
	case asked.reload.Error != nil:
		return refusal(asked.reload.Error, asked.reload.Problems)
	}
	return nil
}

// refusal returns the error of a rejected configuration: the first line is the reason, the other lines list its problems.
func refusal(rejected *api.Error, problems string) error {
	return errors.New(strings.TrimSpace(rejected.Message + "\n" + problems))
}

// refusal returns why this engine does not use the revision intended for it, or nil.
func (c *cluster) refusal() *revision.Refusal {
	if c == nil || c.follower == nil {
		return nil
	}
	own, seen := c.follower.Status()
	if !own.HasRefused(seen.Wanted(own.Name).Ref()) {
		return nil
	}
	return own.Refused
}

// warnOfRetry adds a warning to a reload's diagnostics that a refused revision is retried. The reload does not wait for the
// retry.
func (r loadResult) warnOfRetry(refused *revision.Refusal) loadResult {
	if refused == nil {
		return r
	}
	r.diags = append(slices.Clip(r.diags), config.Diagnostic{
		IsWarning: true,
		Summary:   fmt.Sprintf("retrying revision %d of the pushed configuration, which this engine has refused", refused.Number),
		Hint:      "run sonde-fleet cluster status to see whether the engine uses it",
	})
	return r
}

// addRevisions adds the revisions of the pushed configuration that engines run, as last read from etcd.
func (c *cluster) addRevisions(to *api.Cluster) {
	if c.follower == nil {
		return
	}
	own, seen := c.follower.Status()
	to.Config = &api.ClusterConfig{
		Revision: own.Running.Number, Since: own.Since, Current: seen.Current().Number, Trial: trialOf(seen),
		Refused: refusedOf(own, seen),
	}
	for _, e := range seen.Engines {
		i, found := slices.BinarySearchFunc(to.Members, e.Name, func(m api.ClusterMember, name string) int { return strings.Compare(m.Name, name) })
		if !found || e.Since.IsZero() { // its report cannot be read
			continue
		}
		to.Members[i].Revision = &e.Running.Number
		to.Members[i].Refused = refusedOf(e, seen)
	}
}

// trialOf returns the revision that is on trial on one engine, or nil.
func trialOf(seen revision.Overview) *api.ClusterTrial {
	latest := seen.Latest()
	if latest.Engine == "" {
		return nil
	}
	return &api.ClusterTrial{Revision: latest.Number, Engine: latest.Engine}
}

// refusedOf returns the first line of the reason why an engine does not run the revision intended for it. That line names only
// places in files, since everyone with access to the API can read it.
func refusedOf(e revision.Engine, seen revision.Overview) string {
	if !e.HasRefused(seen.Wanted(e.Name).Ref()) {
		return ""
	}
	line, _, _ := strings.Cut(e.Refused.Error, "\n")
	return line
}
