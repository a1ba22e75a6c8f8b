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

	"github.com/sonde-probe/sonde/adapter/gateway"
	"github.com/sonde-probe/sonde/group"
	"github.com/sonde-probe/sonde/internal/listener"
)

// Bounds on blocking queries. The times are Consul's.
const (
	maxWaiters  = 512 // at once; further ones get the status 429
	defaultWait = 5 * time.Minute
	maxWait     = 10 * time.Minute
	answerTime  = 30 * time.Second // for a client to read an answer
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
// is not known what to answer, a client with an index waits, and another one gets an error.
func (c *Catalog) block(w http.ResponseWriter, r *http.Request, groups []int, answer func(*http.Request, []*group.View) any) {
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
		select {
		case c.waiters <- struct{}{}:
			views, index = c.await(w, r, groups, q)
			<-c.waiters
		default:
			c.session.Refused()
			http.Error(w, "too many blocking queries: the limit is "+strconv.Itoa(maxWaiters)+" at once", http.StatusTooManyRequests)
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
	c.session.Respond(w, answer(r, views))
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

// await waits for an answer with another index than that of a query. Like Consul's it waits
// up to a sixteenth longer, so that clients do not come back all at once.
func (c *Catalog) await(w http.ResponseWriter, r *http.Request, groups []int, q query) (views []*group.View, index uint64) {
	wait := q.wait + rand.N(q.wait/16+1)
	control := http.NewResponseController(w)
	listener.KeepOpen(r.Context())
	_ = control.SetReadDeadline(time.Time{}) // net/http has these deadlines
	_ = control.SetWriteDeadline(time.Now().Add(wait + answerTime))
	ctx, cancel := context.WithTimeout(r.Context(), wait)
	defer cancel()
	for {
		before := c.session.Views()
		views, index = c.views(groups)
		if index != q.index && !slices.Contains(views, nil) || ctx.Err() != nil {
			return views, index
		}
		c.session.Wait(ctx, before, nil)
	}
}
