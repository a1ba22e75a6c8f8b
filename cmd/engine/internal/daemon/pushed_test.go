package daemon

import (
	"context"
	"errors"
	"fmt"
	"log/slog"
	"slices"
	"strings"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	"github.com/sonde-probe/sonde/api"
	"github.com/sonde-probe/sonde/cmd/engine/internal/accepted"
	"github.com/sonde-probe/sonde/config"
	"github.com/sonde-probe/sonde/fleet"
	"github.com/sonde-probe/sonde/fleet/coord"
	"github.com/sonde-probe/sonde/fleet/revision"
	"github.com/sonde-probe/sonde/pause"
	"github.com/sonde-probe/sonde/restart"
)

// A disk that hangs holds up the first revision. The second is replaced by the third before the disk responds: nothing
// older is written after it.
func TestRevisionsAreKeptInTheirOrder(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		var log strings.Builder
		disk, written := make(chan struct{}), []int64{}
		d := &daemon{settings: config.Engine{State: "state"}, log: slog.New(slog.NewTextHandler(&log, nil))}
		d.pushedFile.write = func(name string, _ accepted.Fleet, p *accepted.Pushed) error {
			<-disk
			if name != "state.revision" {
				t.Errorf("it writes to %s", name)
			}
			written = append(written, p.Number())
			return nil
		}
		var keeping sync.WaitGroup
		began := time.Now()
		for number := range int64(3) {
			keeping.Go(func() { d.keepPushed(&accepted.Pushed{Ref: revision.Ref{Number: number + 1}}) })
			synctest.Wait()
		}
		keeping.Wait()
		if took := time.Since(began); took != diskTimeout {
			t.Errorf("the engine waits %v for the disk", took)
		}
		for want, n := range map[string]int{"does not respond": 2, "a later revision is in use": 1} {
			if got := strings.Count(log.String(), want); got != n {
				t.Errorf("%d of 3 warnings that it %s:\n%s", got, want, log.String())
			}
		}
		close(disk)
		synctest.Wait()
		if !slices.Equal(written, []int64{1, 3}) {
			t.Errorf("revisions %v were written", written)
		}
		d.keepPushed(&accepted.Pushed{Ref: revision.Ref{Number: 4}})
		if !slices.Equal(written, []int64{1, 3, 4}) {
			t.Errorf("revisions %v were written after the disk had responded", written)
		}
		d.keepPushed(&accepted.Pushed{Ref: revision.Ref{Number: 2}})
		if !slices.Equal(written, []int64{1, 3, 4, 2}) {
			t.Errorf("revisions %v were written after the store was restored with a lower one", written)
		}
	})
}

// A store that is away may come back within the time that an engine waits at its start. One that refuses the password
// would be asked, and log that, again and again.
func TestAnEngineWaitsAtItsStartForAStoreThatIsAway(t *testing.T) {
	refused := errors.New("etcd: authentication failed")
	for _, c := range []struct {
		err   error
		isOne bool // try
		want  string
	}{
		{refused, true, "etcd: authentication failed"},
		{fmt.Errorf("no leader: %w", coord.ErrUnreachable), false, "etcd does not answer at http://a:2379: no leader"},
		{context.DeadlineExceeded, false, "etcd does not answer at http://a:2379: "},
	} {
		synctest.Test(t, func(t *testing.T) {
			tries, began := 0, time.Now()
			s := &starter{openStore: func(config.Cluster) (Store, error) { tries++; return nil, c.err }}
			p, err := s.currentRevision(config.Cluster{Endpoints: []string{"http://a:2379"}})
			if p != nil || !errors.Is(err, c.err) || !strings.HasPrefix(err.Error(), c.want) {
				t.Errorf("revision %d, %v, want %s", p.Number(), err, c.want)
			}
			if isOne := tries == 1; isOne != c.isOne || isOne == (time.Since(began) >= revisionTimeout) {
				t.Errorf("%v: %d tries in %v", c.err, tries, time.Since(began))
			}
		})
	}
}

// What an engine has refused before is not why it does not run what is current now.
func TestTheStatusHasTheRefusalOfTheCurrentRevision(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		d, b := idle(t), coord.NewLocal()
		d.flags = &flags{clusterName: "a"}
		d.openStore = func(config.Cluster) (Store, error) { return &silentStore{Local: b}, nil }
		var err error
		if d.cluster, err = d.openCluster(&config.Cluster{TTL: 5 * time.Second, Config: config.ClusterConfigEtcd}); err != nil {
			t.Fatal(err)
		}
		if d.restarts, err = restart.New(restart.Config{Engine: d.engine}); err != nil {
			t.Fatal(err)
		}
		if err := d.cluster.makeFleet(fleet.Config{Engine: d.engine, Restarts: d.restarts, Logger: d.log}, config.Trust); err != nil {
			t.Fatal(err)
		}
		d.cluster.pauses = pause.New(pause.Config{Engine: d.engine, Store: d.cluster.coordinator, IsShared: d.cluster.isShared})
		d.cluster.follower, err = revision.New(revision.Config{
			Name: "a", Backend: b, Outdated: d.cluster.setOutdated,
			Check: func(context.Context, revision.Revision, *revision.Bundle) error { return nil },
			Use: func(ctx context.Context, r revision.Revision, _ *revision.Bundle, _ bool) error {
				if r.Number == 1 {
					return errors.New("no plugin")
				}
				<-ctx.Done() // it takes long
				return ctx.Err()
			},
		})
		if err != nil {
			t.Fatal(err)
		}
		ctx, end := context.WithCancel(t.Context())
		var running sync.WaitGroup
		running.Go(func() { d.cluster.run(ctx) })
		defer running.Wait()
		defer end()
		for base, want := range []string{"no plugin", ""} {
			bundle := &revision.Bundle{Sources: []string{"a.hcl"}, Files: map[string][]byte{"a.hcl": {byte(base)}}}
			if _, err := revision.Push(t.Context(), b, revision.Request{Bundle: bundle, Base: int64(base)}); err != nil {
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
