package consul

import (
	"context"
	"errors"
	"fmt"
	"math/rand/v2"
	"net/http"
	"net/url"
	"slices"
	"strconv"
	"time"

	"github.com/sonde-probe/sonde/gateway"
	"github.com/sonde-probe/sonde/group"
)

// Bounds on blocking queries. The times are Consul's.
const (
	maxWaiters  = 512 // at once; further ones get the status 429
	defaultWait = 5 * time.Minute
	maxWait     = 10 * time.Minute
)

// query is what a blocking query asks for: an answer with another index than this one, or
// any after a time. Without an index it does not wait.
type query struct {
	index uint64
	wait  time.Duration
}

// parseQuery reads a query. Its error is for the client.
func parseQuery(values url.Values) (q query, err error) {
	if text := values.Get("index"); text != "" {
		if q.index, err = strconv.ParseUint(text, 10, 64); err != nil {
			return query{}, errors.New("index is no number")
		}
	}
	q.wait = defaultWait
	if text := values.Get("wait"); text != "" {
		if q.wait, err = time.ParseDuration(text); err != nil || q.wait < 0 {
			return query{}, errors.New("wait is no duration such as 10s")
		}
		if q.wait = min(q.wait, maxWait); q.wait == 0 {
			q.wait = defaultWait
		}
	}
	return q, nil
}

// block answers about some groups as soon as their index is another one than the client has.
// That of another life of the engine is, and so is one that the client has made up. While it
// is not known what to answer, a client with an index waits, and another one gets an error. The
// answer depends on the query and the views only.
func (c *Catalog) block(w http.ResponseWriter, r *http.Request, groups []int, query string, answer func([]*group.View) any) {
	q, err := parseQuery(r.URL.Query())
	if dc := r.URL.Query().Get("dc"); err == nil && dc != "" && dc != c.datacenter {
		err = fmt.Errorf("dc is %.64q: the datacenter here is %s", dc, c.datacenter)
	}
	if err == nil && r.URL.Query().Get("filter") != "" {
		err = errors.New("filter is not supported")
	}
	if err != nil {
		c.session.Refused()
		http.Error(w, err.Error(), http.StatusBadRequest)
		return
	}
	views, index := c.views(groups)
	if q.index != 0 && (index == q.index || slices.Contains(views, nil)) {
		// Like Consul's it waits up to a sixteenth longer, so that clients do not come back all at once.
		if !c.waiters.Wait(w, r, q.wait+rand.N(q.wait/16+1), func(ctx context.Context) { views, index = c.await(ctx, groups, q.index) }) {
			c.session.Refused()
			http.Error(w, fmt.Sprintf("too many blocking queries: the limit is %d at once", c.waiters.Limit()), http.StatusTooManyRequests)
			return
		}
	}
	switch {
	case r.Context().Err() != nil:
		gateway.Stopping(w)
		return
	case slices.Contains(views, nil):
		gateway.Undecided(w)
		return
	}
	w.Header().Set("X-Consul-Index", strconv.FormatUint(index, 10))
	w.Header().Set("X-Consul-KnownLeader", "true")
	w.Header().Set("X-Consul-LastContact", "0")
	c.session.Respond(w, query, views, func() any { return answer(views) })
}

// views returns the views of some groups, and their index, which grows with each change. What
// is about no group has the index of the gateway's begin.
func (c *Catalog) views(groups []int) (views []*group.View, index uint64) {
	if len(groups) == 0 {
		return nil, c.began
	}
	kept := c.session.Kept()
	for _, i := range groups {
		if views = append(views, kept[i]); kept[i] != nil {
			index += kept[i].Version
		}
	}
	return views, index
}

// await waits until ctx is done for an answer with another index than that of a query.
func (c *Catalog) await(ctx context.Context, groups []int, than uint64) (views []*group.View, index uint64) {
	for {
		before := c.session.Views()
		views, index = c.views(groups)
		if index != than && !slices.Contains(views, nil) || ctx.Err() != nil {
			return views, index
		}
		c.session.Wait(ctx, before, nil)
	}
}
