package docker

import (
	"context"
	"fmt"
	"net/http"
	"strings"
	"sync/atomic"
	"testing"

	"github.com/sonde-probe/sonde/tests/testsync"
)

// A thousand drivers cost one stream of events, and few lists.
func TestFollowersShareOneStreamAndItsLists(t *testing.T) {
	const containers = 1000
	var list []string
	for n := range containers {
		list = append(list, fmt.Sprintf(`{"Id":"%064d","Names":["/c%d"],"State":"running","Status":"Up 2 hours"}`, n, n))
	}
	var lists, inspects, streams atomic.Int64
	c := serve(t, func(w http.ResponseWriter, r *http.Request) {
		switch words := strings.Split(r.URL.Path, "/"); {
		case strings.HasSuffix(r.URL.Path, "/events"):
			streams.Add(1)
			w.WriteHeader(http.StatusOK)
			_ = http.NewResponseController(w).Flush()
			<-r.Context().Done()
		case words[3] == "json":
			lists.Add(1)
			_, _ = fmt.Fprintf(w, "[%s]", strings.Join(list, ","))
		default:
			inspects.Add(1)
			id := words[3]
			_, _ = fmt.Fprintf(w, `{"Id":%q,"Name":"/c%s","State":{"Status":"running","Running":true,"Pid":1,"StartedAt":"2026-11-30T17:16:02Z"}}`, id, strings.TrimLeft(id[:63], "0")+id[63:])
		}
	})
	w := NewWatch(c)
	ctx, cancel := context.WithCancel(t.Context())
	ended := make(chan struct{})
	go func() {
		defer close(ended)
		_ = w.Run(ctx)
	}()
	var followers []*Follower
	for n := range containers {
		followers = append(followers, w.Follow(Selector{Name: fmt.Sprintf("c%d", n)}, func() {}))
	}
	for n, f := range followers {
		testsync.Until(t, fmt.Sprintf("container %d", n), func() bool {
			v := f.View()
			return v.Lost == nil && v.IsListed && len(v.Containers) == 1 && v.Containers[0].State.Running
		})
	}
	cancel()
	<-ended
	if streams.Load() != 1 || lists.Load() > 4 || inspects.Load() > containers {
		t.Errorf("%d streams, %d lists, %d inspects", streams.Load(), lists.Load(), inspects.Load())
	}
}
