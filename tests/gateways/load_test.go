//go:build linux

package gateways

import (
	"context"
	"errors"
	"fmt"
	"io"
	"net"
	"net/http"
	"strconv"
	"strings"
	"sync"
	"syscall"
	"testing"
	"time"
)

// Bounds of a load.
const (
	maxUnderWay    = 2000             // requests; more wait
	requestTimeout = 90 * time.Second // longer than any gateway lets a request wait
)

// load makes requests at a steady rate, whether earlier ones were answered or not, each on a
// connection of its own.
type load struct {
	client *http.Client
	stop   context.CancelFunc
	ended  sync.WaitGroup

	mu       sync.Mutex // guards all below
	done     int
	by       map[string]int // answers, by backend
	from     time.Time      // failures of requests that began earlier do not count
	failed   int            // since the last take
	resent   int            // requests that this client has made again: they could not be sent
	repeated int            // sendings again that the gateway reports, in the header Repeated
	failure  string         // one of them
	mark     time.Time
	first    map[string]time.Time // first answers to requests that began after mark, by backend
}

func newLoad(to net.Addr, perSecond int) *load {
	ctx, cancel := context.WithCancel(context.Background())
	l := &load{stop: cancel, by: map[string]int{}, first: map[string]time.Time{}}
	l.client = &http.Client{Timeout: requestTimeout, Transport: &http.Transport{
		DisableKeepAlives: true,
		DialContext: func(ctx context.Context, _, _ string) (net.Conn, error) {
			return new(net.Dialer).DialContext(ctx, to.Network(), to.String())
		},
	}}
	places := make(chan struct{}, maxUnderWay)
	l.ended.Go(func() {
		began := time.Now()
		for n := 0; ctx.Err() == nil; n++ {
			if due := began.Add(time.Duration(n) * time.Second / time.Duration(perSecond)); time.Until(due) > 0 {
				time.Sleep(time.Until(due))
			}
			places <- struct{}{}
			l.ended.Go(func() { l.request(n); <-places })
		}
	})
	return l
}

// request makes a request, which no cache has an answer to.
func (l *load) request(n int) {
	began := time.Now()
	by, err := l.get(fmt.Sprint("/?", n))
	now := time.Now()
	l.mu.Lock()
	defer l.mu.Unlock()
	l.done++
	if err != nil {
		if began.After(l.from) {
			l.failed++
			l.failure = err.Error()
		}
		return
	}
	l.by[by]++
	if _, known := l.first[by]; !known && began.After(l.mark) {
		l.first[by] = now
	}
}

// forgive forgets what has failed, and what will of the requests that are under way: there was
// no gateway.
func (l *load) forgive() {
	l.mu.Lock()
	defer l.mu.Unlock()
	l.from, l.failed = time.Now(), 0
}

// maxUnsent is how often a request is made again that could not be sent: a busy machine may let
// seconds pass after the connection, and gateways close those on which they hear nothing.
const maxUnsent = 5

// get makes a request, and returns who has answered it.
func (l *load) get(path string) (by string, err error) {
	answer, err := l.client.Get("http://localhost" + path)
	for n := 0; n < maxUnsent && err != nil && (errors.Is(err, syscall.EPIPE) || strings.HasSuffix(err.Error(), "server closed idle connection")); n++ {
		l.count(&l.resent, 1)
		answer, err = l.client.Get("http://localhost" + path)
	}
	if err != nil {
		return "", err
	}
	defer answer.Body.Close()
	if n, err := strconv.Atoi(answer.Header.Get("Repeated")); err == nil {
		l.count(&l.repeated, n)
	}
	text, err := io.ReadAll(answer.Body)
	if err != nil || answer.StatusCode != http.StatusOK {
		return "", fmt.Errorf("status %d, %v: %.80q", answer.StatusCode, err, text)
	}
	return strings.TrimSpace(string(text)), nil
}

// count adds to one of the counters.
func (l *load) count(counter *int, n int) {
	l.mu.Lock()
	defer l.mu.Unlock()
	*counter += n
}

// again returns how many requests were made again so far, by this client, and by the gateway if it
// reports that.
func (l *load) again() (byClient, byGateway int) {
	l.mu.Lock()
	defer l.mu.Unlock()
	return l.resent, l.repeated
}

// total returns how many requests have ended.
func (l *load) total() int {
	l.mu.Lock()
	defer l.mu.Unlock()
	return l.done
}

// pass waits until so many further requests have ended.
func (l *load) pass(t *testing.T, n int) {
	t.Helper()
	upTo := l.total() + n
	until(t, fmt.Sprint(n, " requests"), func() bool { return l.total() >= upTo })
}

// answers returns how many requests backends have answered.
func (l *load) answers() map[string]int {
	l.mu.Lock()
	defer l.mu.Unlock()
	all := map[string]int{}
	for name, n := range l.by {
		all[name] = n
	}
	return all
}

// begin forgets the first answers: those to requests that begin from now on count.
func (l *load) begin() {
	l.mu.Lock()
	defer l.mu.Unlock()
	l.mark = time.Now()
	clear(l.first)
}

// firstOf returns when a backend answered a request that began after begin; zero if it has
// not.
func (l *load) firstOf(name string) time.Time {
	l.mu.Lock()
	defer l.mu.Unlock()
	return l.first[name]
}

// take returns how many requests have failed since the last call, and how one of them has.
func (l *load) take() (failed int, failure string) {
	l.mu.Lock()
	defer l.mu.Unlock()
	failed, failure = l.failed, l.failure
	l.failed, l.failure = 0, ""
	return failed, failure
}

// end ends the load, and waits for what is under way.
func (l *load) end() {
	l.stop()
	l.ended.Wait()
}
