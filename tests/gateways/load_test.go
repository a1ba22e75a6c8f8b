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

// Limits of a load.
const (
	maxUnderWay    = 2000             // requests in progress; more wait
	requestTimeout = 90 * time.Second // longer than any gateway lets a request wait
)

// load sends requests at a steady rate, whether or not earlier ones were answered, each on its own connection.
type load struct {
	client *http.Client
	stop   context.CancelFunc
	ended  sync.WaitGroup

	mu       sync.Mutex // guards all below
	done     int
	by       map[string]int // responses, by backend
	from     time.Time      // failures of requests that began earlier do not count
	failed   int            // since the last take
	resent   int            // requests that this client has resent: they could not be sent
	repeated int            // repetitions that the gateway reports, in the header Repeated
	failure  string         // one of the failures
	mark     time.Time
	first    map[string]time.Time // first responses to requests that began after begin, by backend
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

// request sends a request for which no cache has a response.
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

// forgive discards failures, including future ones of the requests in progress: there was no gateway.
func (l *load) forgive() {
	l.mu.Lock()
	defer l.mu.Unlock()
	l.from, l.failed = time.Now(), 0
}

// maxUnsent is how many times a request that could not be sent is resent: on a busy machine, seconds may pass after the connection
// was opened, and gateways close silent connections.
const maxUnsent = 5

// get sends a request, and returns the backend that has responded.
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

// again returns the numbers of requests that were resent so far, by this client, and by the gateway if it reports that.
func (l *load) again() (byClient, byGateway int) {
	l.mu.Lock()
	defer l.mu.Unlock()
	return l.resent, l.repeated
}

// total returns the number of finished requests.
func (l *load) total() int {
	l.mu.Lock()
	defer l.mu.Unlock()
	return l.done
}

// pass waits until n more requests have finished.
func (l *load) pass(t *testing.T, n int) {
	t.Helper()
	upTo := l.total() + n
	until(t, fmt.Sprint(n, " requests"), func() bool { return l.total() >= upTo })
}

// answers returns the number of responses by backend.
func (l *load) answers() map[string]int {
	l.mu.Lock()
	defer l.mu.Unlock()
	all := map[string]int{}
	for name, n := range l.by {
		all[name] = n
	}
	return all
}

// begin discards the first responses: requests that begin from now on count.
func (l *load) begin() {
	l.mu.Lock()
	defer l.mu.Unlock()
	l.mark = time.Now()
	clear(l.first)
}

// firstOf returns when a backend first responded to a request that began after begin; zero if it has not.
func (l *load) firstOf(name string) time.Time {
	l.mu.Lock()
	defer l.mu.Unlock()
	return l.first[name]
}

// take returns the number of failed requests since the last call, and the error of one of them.
func (l *load) take() (failed int, failure string) {
	l.mu.Lock()
	defer l.mu.Unlock()
	failed, failure = l.failed, l.failure
	l.failed, l.failure = 0, ""
	return failed, failure
}

// end stops the load, and waits for the requests in progress.
func (l *load) end() {
	l.stop()
	l.ended.Wait()
}
