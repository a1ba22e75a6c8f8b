package daemon

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"strings"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	"github.com/sonde-probe/sonde/api"
	"github.com/sonde-probe/sonde/config"
	"github.com/sonde-probe/sonde/fleet"
	"github.com/sonde-probe/sonde/fleet/coord"
	"github.com/sonde-probe/sonde/fleet/revision"
	"github.com/sonde-probe/sonde/pause"
	"github.com/sonde-probe/sonde/restart"
	"github.com/sonde-probe/sonde/tests/coordtest"
)

// refusing is a store that returns an error for each read.
type refusing struct {
	silentStore
	err   error
	tries int
}

func (r *refusing) Range(context.Context, string) ([]coord.Entry, coord.Revision, error) {
	r.tries++
	return nil, 0, r.err
}

// An unreachable store may become reachable while an engine waits for it at its start. A store that rejects the password is not
// retried, since each attempt would be logged.
func TestAnEngineWaitsAtItsStartForAStoreThatIsAway(t *testing.T) {
	refused := errors.New("etcd: authentication failed")
	for _, c := range []struct {
		err   error
		isOne bool // only one attempt
		want  string
	}{
		{refused, true, "read the revisions of the configuration: etcd: authentication failed"},
		{fmt.Errorf("no leader: %w", coord.ErrUnreachable), false, "etcd does not respond at http://a:2379: read the revisions of the configuration: no leader"},
		{context.DeadlineExceeded, false, "etcd does not respond at http://a:2379: "},
	} {
		synctest.Test(t, func(t *testing.T) {
			store, began := &refusing{err: c.err}, time.Now()
			s := &starter{openStore: func(config.Cluster) (Store, error) { return store, nil }}
			p, err := s.currentRevision(config.Cluster{Endpoints: []string{"http://a:2379"}})
			if p != nil || !errors.Is(err, c.err) || !strings.HasPrefix(err.Error(), c.want) {
				t.Errorf("revision %+v, %v, want %s", p, err, c.want)
			}
			if isOne := store.tries == 1; isOne != c.isOne || isOne == (time.Since(began) >= revisionTimeout) {
				t.Errorf("%v: %d tries in %v", c.err, store.tries, time.Since(began))
			}
		})
	}
}

// A past refusal is not the reason why an engine does not run the current revision.
func TestTheStatusHasTheRefusalOfTheCurrentRevision(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		d, b := idle(t), coordtest.NewLocal()
		d.flags = &flags{clusterName: "a"}
		d.openStore = func(config.Cluster) (Store, error) { return &silentStore{Local: b}, nil }
		var err error
		if d.cluster, err = d.openCluster(&config.Cluster{TTL: 5 * time.Second, Config: "etcd"}); err != nil {
			t.Fatal(err)
		}
		if d.restarts, err = restart.New(restart.Config{Engine: d.engine}); err != nil {
			t.Fatal(err)
		}
		d.cluster.makeFleet(fleet.Config{Engine: d.engine, Restarts: d.restarts, Notices: notices{d.notifiers}, Logger: d.log}, config.Trust)
		d.cluster.pauses = pause.New(pause.Config{Engine: d.engine, Coordinator: d.cluster.coordinator, IsShared: d.cluster.isShared})
		d.cluster.follower = revision.New(revision.Config{
			Coordinator: d.cluster.coordinator, Outdated: d.cluster.setOutdated, Redact: d.queue.Secrets.Text, Logger: d.log,
			Use: func(ctx context.Context, r revision.Revision, _ *revision.Bundle, _ bool) error {
				if r.Number == 1 {
					return errors.New("no plugin\nin a.hcl")
				}
				<-ctx.Done() // takes long
				return ctx.Err()
			},
		})
		ctx, end := context.WithCancel(t.Context())
		var running sync.WaitGroup
		running.Go(func() { d.cluster.run(ctx) })
		defer running.Wait()
		defer end()
		for base, want := range []string{"no plugin", ""} {
			bundle := &revision.Bundle{Sources: []string{"a.hcl"}, Files: map[string][]byte{"a.hcl": {byte(base)}}}
			seen, err := revision.Read(t.Context(), b)
			if err != nil {
				t.Fatal(err)
			}
			if _, err := revision.Push(t.Context(), b, seen, revision.Revision{}, bundle); err != nil {
				t.Fatal(err)
			}
			time.Sleep(10 * time.Second)
			c := d.cluster.status()
			if c.Config == nil || c.Config.Current != int64(base+1) || c.Config.Refused != want {
				t.Errorf("revision %d: %+v, want %q", base+1, c.Config, want)
			}
			member := slices.IndexFunc(c.Members, func(m api.ClusterMember) bool { return m.Name == "a" })
			if member >= 0 && c.Members[member].Refused != want {
				t.Errorf("revision %d: %+v, want %q", base+1, c.Members[member], want)
			}
		}
	})
}
