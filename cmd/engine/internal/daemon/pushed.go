package daemon

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"strings"
	"time"

	"github.com/sonde-probe/sonde/adapter/httpapi"
	"github.com/sonde-probe/sonde/cmd/engine/internal/accepted"
	"github.com/sonde-probe/sonde/config"
	"github.com/sonde-probe/sonde/coord/revision"
)

// ownFiles are the texts of an engine's own files, and files with variables.
type ownFiles struct{ sources, files []config.Source }

// read loads the configuration of the files. If its targets are pushed to the cluster, it loads that of the files
// and of the revision that the engine has used last: etcd may be away.
func (s *starter) read() (own ownFiles, r loadResult) {
	r.plugins = s.plugins()
	if s.isOnlyPods(s.paths) {
		r.config, r.diags = s.parse(nil, nil, r.plugins, nil)
		return own, r
	}
	own.sources, own.files, r.diags = s.inputs.Read(s.paths)
	if r.diags.HasErrors() {
		return own, r
	}
	r.config, r.diags = s.parse(own.sources, own.files, r.plugins, nil)
	if r.diags.HasErrors() || !r.config.Cluster.IsPushed() {
		return own, r
	}
	if r.config.Engine.State == "" {
		return own, r.warn("the engine has no targets after its start until etcd answers: set state in the engine block, beside which it keeps what was pushed")
	}
	pushed, err := accepted.ReadPushed(accepted.PushedFile(r.config.Engine.State))
	if err != nil {
		return own, r.warn("the pushed configuration that was in use cannot be read, the engine has no targets until etcd answers: %v", err)
	}
	if pushed == nil {
		return own, r
	}
	r.pushed, r.plugins.Inputs = pushed, pushed.Inputs()
	r.config, r.diags = s.parse(pushed.Sources(own.sources), own.files, r.plugins, nil)
	return own, r
}

// orOwn returns what was loaded, or, if a revision that was used before has errors now, the configuration of the
// engine's own files: it has no targets until the cluster has another revision.
func (s *starter) orOwn(r loadResult, own ownFiles) loadResult {
	if r.pushed == nil || !r.diags.HasErrors() {
		return r
	}
	alone := loadResult{plugins: s.plugins()}
	alone.config, alone.diags = s.parse(own.sources, own.files, alone.plugins, nil)
	r.plugins.Release(alone.plugins)
	if alone.diags.HasErrors() { // what they name has changed since they were read
		return alone
	}
	errs, _ := r.diags.Count()
	found := errorsOf(r.diags, errs)
	for i := range r.diags {
		r.diags[i].Severity = config.Warning
	}
	alone.diags = r.diags
	return alone.warn("revision %d of the pushed configuration, which was in use, cannot be used now (%v): the engine has no targets until it can use the current one", r.pushed.Number(), found)
}

// openFollower makes what has the engine follow the configuration that is pushed to its cluster.
func (d *daemon) openFollower(c *cluster, name string) (err error) {
	if !c.config.IsPushed() {
		return nil
	}
	var running revision.Ref
	if d.pushed != nil {
		running = d.pushed.Ref
	}
	c.follower, err = revision.New(revision.Config{
		Name: name, Backend: c.store, TTL: c.config.TTL, Running: running,
		Check: d.checkRevision, Use: d.useRevision, Outdated: c.setOutdated, Redact: d.queue.Secrets.Text, Logger: d.log,
	})
	return err
}

// setOutdated gives the targets to the other engines while they have the current revision, and this one has refused it.
func (c *cluster) setOutdated(isOutdated bool) {
	c.coordinator.Drain(isOutdated)
	select {
	case c.current <- struct{}{}:
	default:
	}
}

// checkRevision says whether the engine could use a revision: it plans that.
func (d *daemon) checkRevision(ctx context.Context, r revision.Revision, b *revision.Bundle) error {
	asked := d.requestOfFollower(ctx, &job{trigger: byPush, plan: true, pushed: &accepted.Pushed{Ref: r.Ref(), Bundle: b}})
	switch p := asked.plan; {
	case asked.err != nil:
		return asked.err
	case p.Error == nil || p.Guarded && r.Force:
		return nil
	case p.Guarded:
		return fmt.Errorf("%s; if that is meant, push with --force", p.Error.Message)
	default:
		return refusal(p.Error, p.Problems)
	}
}

// useRevision puts a revision into use. The reload guard was asked when it was proposed.
func (d *daemon) useRevision(ctx context.Context, r revision.Revision, b *revision.Bundle) error {
	pushed := &accepted.Pushed{Ref: r.Ref(), Bundle: b}
	asked := d.requestOfFollower(ctx, &job{trigger: byPush, force: true, pushed: pushed})
	switch {
	case asked.err != nil:
		return asked.err
	case asked.reload.Error != nil:
		return refusal(asked.reload.Error, asked.reload.Problems)
	}
	d.keepPushed(ctx, pushed)
	return nil
}

// refusal is the error of a configuration that was rejected, with what is wrong with it.
func refusal(rejected error, problems string) error {
	if problems = strings.TrimSpace(problems); problems != "" {
		return errors.New(problems)
	}
	return rejected
}

// requestOfFollower is request for a follower. An engine that is stopping neither accepts nor refuses
// anything: then it returns when ctx is done, which it will be.
func (d *daemon) requestOfFollower(ctx context.Context, j *job) reply {
	asked := d.request(ctx, j)
	if errors.Is(asked.err, errStopping) {
		<-ctx.Done()
	}
	return asked
}

// keepPushed writes a revision to the file that an engine reads which starts while etcd is away. It does not wait
// for a disk that hangs.
func (d *daemon) keepPushed(ctx context.Context, p *accepted.Pushed) {
	if d.settings.State == "" {
		return
	}
	written := make(chan error, 1)
	go func() { written <- accepted.WritePushed(accepted.PushedFile(d.settings.State), p) }()
	err := error(nil)
	select {
	case err = <-written:
	case <-time.After(diskTimeout):
		err = fmt.Errorf("the disk of the state file %s does not respond", d.settings.State)
	case <-ctx.Done():
	}
	if err != nil {
		d.log.Warn("pushed configuration not kept: an engine that starts while etcd is away has the one before", "revision", p.Number(), "error", err)
	}
}

// addRevisions adds which revisions of the pushed configuration engines run, as etcd has shown them last.
func (c *cluster) addRevisions(to *httpapi.Cluster) {
	if c.follower == nil {
		return
	}
	told, current := c.follower.Status()
	to.Config = &httpapi.ClusterConfig{Revision: told.Running.Number, Since: told.Since, Current: current.Number}
	if told.Refused != nil {
		to.Config.Refused = told.Refused.Error
	}
	for _, e := range c.follower.Engines() {
		i, found := slices.BinarySearchFunc(to.Members, e.Name, func(m httpapi.ClusterMember, name string) int { return strings.Compare(m.Name, name) })
		if !found || e.Format == 0 {
			continue
		}
		to.Members[i].Revision = &e.Running.Number
		if e.Refused != nil {
			to.Members[i].Refused = e.Refused.Error
		}
	}
}
