package daemon

import (
	"bytes"
	"context"
	"log/slog"
	"strings"
	"sync/atomic"
	"testing"
	"testing/synctest"
	"time"

	"github.com/sonde-probe/sonde/api"
)

func TestASilentNameServerIsLoggedWhenThatBeginsAndEnds(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		var log bytes.Buffer
		var silent atomic.Pointer[[]api.NameServer]
		silent.Store(&[]api.NameServer{})
		ctx, stop := context.WithCancel(t.Context())
		done := make(chan struct{})
		go func() {
			defer close(done)
			logNameServers(ctx, slog.New(slog.NewTextHandler(&log, nil)), func() []api.NameServer { return *silent.Load() })
		}()
		for n := range 3 {
			silent.Store(&[]api.NameServer{{Address: "10.0.0.1:53", Since: time.Unix(0, 0), Unanswered: 3 + n}})
			time.Sleep(5 * time.Second)
		}
		silent.Store(&[]api.NameServer{})
		time.Sleep(5 * time.Second)
		stop()
		<-done
		lines := strings.Split(strings.TrimSpace(log.String()), "\n")
		if len(lines) != 2 || !strings.Contains(lines[0], "does not respond") || !strings.Contains(lines[0], "server=10.0.0.1:53 queries=3") || !strings.Contains(lines[1], "responds again") {
			t.Errorf("got the log\n%s", &log)
		}
	})
}
