package daemon

import (
	"context"
	"log/slog"
	"time"

	"github.com/sonde-probe/sonde/api"
	"github.com/sonde-probe/sonde/internal/dial"
)

// silentNameServers returns for the API the name servers that do not respond.
func silentNameServers() []api.NameServer {
	var all []api.NameServer
	for _, n := range dial.SilentNameServers() {
		all = append(all, api.NameServer(n))
	}
	return all
}

// logNameServers logs when a name server stops responding, and when it responds again or is no longer queried, until ctx is
// done.
func logNameServers(ctx context.Context, log *slog.Logger, silent func() []api.NameServer) {
	tick := time.NewTicker(time.Second)
	defer tick.Stop()
	before := map[string]time.Time{}
	for ctx.Err() == nil {
		now := map[string]time.Time{}
		for _, n := range silent() {
			if now[n.Address] = n.Since; before[n.Address] != n.Since {
				log.Warn("name server does not respond", "server", n.Address, "queries", n.Unanswered, "since", n.Since)
			}
		}
		for address, since := range before {
			if _, isSilent := now[address]; !isSilent {
				log.Info("name server responds again, or is no longer queried", "server", address, "silent", time.Since(since).Round(time.Second))
			}
		}
		before = now
		select {
		case <-ctx.Done():
		case <-tick.C:
		}
	}
}
