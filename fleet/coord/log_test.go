package coord_test

import (
	"bytes"
	"context"
	"errors"
	"log/slog"
	"strings"
	"sync/atomic"
	"testing"
	"testing/synctest"
	"time"

	"github.com/sonde-probe/sonde/fleet/coord"
	"github.com/sonde-probe/sonde/tests/coordtest"
	"github.com/sonde-probe/sonde/tests/tier"
)

// denying is a Backend that refuses requests: to get a lease, or those that change the owners of shards.
type denying struct {
	coord.Backend
	grants, claims bool
	denied         atomic.Int64
}

var errDenied = errors.New("permission denied")

func (b *denying) Grant(ctx context.Context, ttl time.Duration) (coord.Lease, error) {
	if b.grants {
		b.denied.Add(1)
		return 0, errDenied
	}
	return b.Backend.Grant(ctx, ttl)
}

func (b *denying) Commit(ctx context.Context, all ...coord.Transaction) ([]bool, error) {
	if b.claims && strings.HasPrefix(all[0].Then[0].Key, "fleet/shard/") {
		b.denied.Add(1)
		return nil, errDenied
	}
	return b.Backend.Commit(ctx, all...)
}

// What fails each second is logged each minute, with the reason.
func TestWhatABackendRefusesAgainAndAgainIsLoggedOnceAMinute(t *testing.T) {
	tier.Slow(t)
	for message, b := range map[string]*denying{
		"not a member of the fleet, joining again": {grants: true},
		"shards cannot be claimed, trying again":   {claims: true},
	} {
		synctest.Test(t, func(t *testing.T) {
			b.Backend = coordtest.NewLocal()
			var text bytes.Buffer
			_, end := run(t, coord.Config{Name: "a", Backend: b, Logger: slog.New(slog.NewTextHandler(&text, nil))})
			time.Sleep(10 * time.Minute)
			end()
			if n := strings.Count(text.String(), `msg="`+message+`"`); n < 9 || n > 11 || b.denied.Load() < 100 {
				t.Errorf("of %d refused requests %d are logged within ten minutes:\n%.2000s", b.denied.Load(), n, text.String())
			}
			if !strings.Contains(text.String(), errDenied.Error()) {
				t.Errorf("the reason is not logged:\n%.2000s", text.String())
			}
		})
	}
}

// A shard whose owner is no member, as one that was put by hand, is never claimed: people have to know.
func TestAShardWithoutALiveOwnerIsLogged(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		b := coordtest.NewLocal()
		put := coord.Change{Key: "fleet/shard/0007", Value: []byte("ghost/2a")}
		if _, err := b.Commit(t.Context(), coord.Transaction{Then: []coord.Change{put}}); err != nil {
			t.Fatal(err)
		}
		var text bytes.Buffer
		_, end := run(t, coord.Config{Name: "a", Backend: b, Logger: slog.New(slog.NewTextHandler(&text, nil))})
		_, endOther := run(t, coord.Config{Name: "b", Backend: b})
		time.Sleep(5 * time.Minute)
		endOther() // whose shards are without an owner for a moment
		time.Sleep(5 * time.Minute)
		end()
		if n := strings.Count(text.String(), "shards=1 key=fleet/shard/0007 owner=ghost"); n < 9 || n > 11 {
			t.Errorf("it is logged %d times within ten minutes:\n%.2000s", n, text.String())
		}
		if n := strings.Count(text.String(), "level=WARN"); n > 11 {
			t.Errorf("there are %d warnings:\n%.2000s", n, text.String())
		}
	})
}

// A member key that no engine has put, without a lease, keeps the shards of that member from all engines.
func TestAMemberThatClaimsNothingIsLogged(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		b := coordtest.NewLocal()
		put := coord.Change{Key: "fleet/m/ghost", Value: []byte("?")}
		if _, err := b.Commit(t.Context(), coord.Transaction{Then: []coord.Change{put}}); err != nil {
			t.Fatal(err)
		}
		var text bytes.Buffer
		_, end := run(t, coord.Config{Name: "a", Backend: b, Logger: slog.New(slog.NewTextHandler(&text, nil))})
		time.Sleep(10 * time.Minute)
		end()
		if n := strings.Count(text.String(), "key=fleet/m/ghost"); n < 9 || n > 11 {
			t.Errorf("it is logged %d times within ten minutes:\n%.2000s", n, text.String())
		}
	})
}

func TestAnEngineWhoseNameIsTakenLogsIt(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		b := coordtest.NewLocal()
		_, endFirst := run(t, coord.Config{Name: "a", Backend: b})
		time.Sleep(time.Minute)
		var text bytes.Buffer
		_, end := run(t, coord.Config{Name: "a", Backend: b, Logger: slog.New(slog.NewTextHandler(&text, nil))})
		time.Sleep(10 * time.Minute)
		synctest.Wait()
		if n := strings.Count(text.String(), "another engine has this name"); n < 9 || n > 11 {
			t.Errorf("it is logged %d times within ten minutes:\n%.2000s", n, text.String())
		}
		if strings.Contains(text.String(), "no engine probes") {
			t.Errorf("it looks at shards before it is a member:\n%.2000s", text.String())
		}
		text.Reset()
		endFirst()
		time.Sleep(10 * time.Minute)
		end()
		if !strings.Contains(text.String(), "joined the fleet") || strings.Contains(text.String(), "level=WARN") {
			t.Errorf("it does not join when the name is free:\n%.2000s", text.String())
		}
	})
}
