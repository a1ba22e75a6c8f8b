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

// denying is a Backend that rejects requests: for a lease, or those that change the owners of shards.
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

// Failures that repeat each second are logged once a minute, with the reason.
func TestWhatABackendRefusesAgainAndAgainIsLoggedOnceAMinute(t *testing.T) {
	tier.Slow(t)
	for message, b := range map[string]*denying{
		"not a member of the fleet, joining again": {grants: true},
		"cannot claim shards, retrying":            {claims: true},
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

func TestAnEngineWhoseNameIsTakenLogsIt(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		b := coordtest.NewLocal()
		_, endFirst := run(t, coord.Config{Name: "a", Backend: b})
		time.Sleep(time.Minute)
		var text bytes.Buffer
		_, end := run(t, coord.Config{Name: "a", Backend: b, Logger: slog.New(slog.NewTextHandler(&text, nil))})
		time.Sleep(10 * time.Minute)
		synctest.Wait()
		if n := strings.Count(text.String(), "another engine has the same name"); n < 9 || n > 11 {
			t.Errorf("it is logged %d times within ten minutes:\n%.2000s", n, text.String())
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
