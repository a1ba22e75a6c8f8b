// Package docker is a client of the Docker Engine API, as Docker and Podman serve it at a Unix
// socket: what a driver of containers needs of it, and a watch of all containers of a socket.
//
//	docker.go         Client: calls, the version, bounds
//	socket.go         where the runtime listens
//	errors.go         what went wrong, typed
//	container.go      Container: inspect and list
//	lifecycle.go      create, start, restart, kill and remove
//	image.go          pull
//	stream.go         the multiplexed stream of outputs, and logs
//	exec.go           commands inside a container
//	process_linux.go  signals to exactly one process, by a pidfd
//	process_other.go  the same elsewhere: refused
//	events.go         the stream of events
//	watch.go          Watch: the containers of a socket, and who follows them
//	sync.go           what keeps it up to date: inspect after events, and lists
package docker

import (
	"bytes"
	"context"
	"encoding/json"
	"fmt"
	"io"
	"net"
	"net/http"
	"net/url"
	"strconv"
	"strings"
	"sync/atomic"
	"time"
)

// Limits of the API's answers, and of the calls.
const (
	maxAnswer  = 1 << 20  // bytes of one answer
	maxList    = 32 << 20 // bytes of a list: 32 KiB for each of 1,000 containers
	maxMessage = 4 << 10  // bytes of an error's message

	maxCalls  = 8  // connections of short calls; more calls wait, as those of the next two
	maxLong   = 64 // of calls that last: starts and stops
	maxExecs  = 32 // of commands that run inside containers
	idleConns = 4

	// callTimeout is for a runtime that does not answer. Docker on a loaded machine takes up to a second.
	callTimeout = 10 * time.Second
)

// The versions of the API. Docker Engine 29 refuses versions before 1.44; Podman 4 and Docker Engine 20.10 have 1.41. Version
// 1.40 is that of Docker Engine 19.03 and Podman 3.
var (
	minVersion = version{1, 40}
	maxVersion = version{1, 44}
)

type version struct{ major, minor int }

func (v version) String() string { return fmt.Sprintf("%d.%d", v.major, v.minor) }

func (v version) before(w version) bool {
	return v.major < w.major || v.major == w.major && v.minor < w.minor
}

// parseVersion returns the version of a header, such as "1.41".
func parseVersion(s string) (v version, ok bool) {
	major, minor, found := strings.Cut(s, ".")
	var err, err2 error
	v.major, err = strconv.Atoi(major)
	v.minor, err2 = strconv.Atoi(minor)
	return v, found && err == nil && err2 == nil
}

// Client calls the API at one Unix socket. It is safe for use by multiple goroutines.
type Client struct {
	socket  string
	short   http.Client // calls that are answered at once; connections are kept
	long    http.Client // calls that last; a connection for each, as for the next two
	execs   http.Client // outputs of commands
	events  http.Client // one stream of events, and pings, which never wait for a connection
	version atomic.Pointer[version]
}

// New returns a client of the runtime that listens at a Unix socket, a path. It does not connect.
func New(socket string) *Client {
	dial := func(ctx context.Context, _, _ string) (net.Conn, error) {
		return (&net.Dialer{}).DialContext(ctx, "unix", socket)
	}
	by := func(most, kept int) http.Client {
		return http.Client{Transport: &http.Transport{
			DialContext: dial, MaxConnsPerHost: most, MaxIdleConnsPerHost: kept, DisableKeepAlives: kept == 0, IdleConnTimeout: 90 * time.Second,
		}}
	}
	return &Client{socket: socket, short: by(maxCalls, idleConns), long: by(maxLong, 0), execs: by(maxExecs, 0), events: by(0, 0)}
}

// Socket returns the path of the runtime's socket.
func (c *Client) Socket() string { return c.socket }

// Close closes the connections that no call uses.
func (c *Client) Close() { c.short.CloseIdleConnections() }

// Ping asks the runtime for its version, which the next calls use. It is an error if the version is too old.
func (c *Client) Ping(ctx context.Context) error {
	ctx, cancel := context.WithTimeout(ctx, callTimeout)
	defer cancel()
	// By a connection of its own: one that is kept works when the socket is gone, and the next call may need another.
	res, err := c.send(ctx, &c.events, request{method: http.MethodGet, path: "/_ping"})
	if err != nil {
		return err
	}
	defer closeBody(res)
	v, ok := parseVersion(res.Header.Get("Api-Version"))
	if !ok {
		return c.errorf("ping", "%s is not the socket of a container runtime: its answer has no Api-Version", c.socket)
	}
	if v.before(minVersion) {
		return c.errorf("ping", "the runtime at %s has version %v of the API, Sonde needs %v: Docker Engine 19.03, Podman 3, or later", c.socket, v, minVersion)
	}
	if maxVersion.before(v) {
		v = maxVersion
	}
	c.version.Store(&v)
	return nil
}

// request is a call of the API.
type request struct {
	method  string
	path    string // without the version
	query   url.Values
	body    any // nil for none
	limit   int64
	headers map[string]string
}

// call makes a short call, and decodes its answer, if out is not nil.
func (c *Client) call(ctx context.Context, r request, out any) error {
	return c.callBy(ctx, &c.short, r, callTimeout, out)
}

// callLong is call for what the runtime does before it answers.
func (c *Client) callLong(ctx context.Context, r request, timeout time.Duration, out any) error {
	return c.callBy(ctx, &c.long, r, timeout, out)
}

func (c *Client) callBy(ctx context.Context, by *http.Client, r request, timeout time.Duration, out any) error {
	ctx, cancel := context.WithTimeout(ctx, timeout)
	defer cancel()
	res, err := c.sendVersioned(ctx, by, r)
	if err != nil {
		return err
	}
	defer closeBody(res)
	if out == nil {
		return nil
	}
	limit := max(r.limit, maxAnswer)
	text, err := io.ReadAll(io.LimitReader(res.Body, limit+1))
	switch {
	case err != nil:
		return c.failed(ctx, r.op(), err)
	case int64(len(text)) > limit:
		return c.errorf(r.op(), "the answer is larger than %d bytes", limit)
	}
	if err := json.Unmarshal(text, out); err != nil {
		return c.errorf(r.op(), "the answer cannot be understood: %v", err)
	}
	return nil
}

// sendVersioned sends a request with the version in its path, which it asks for once.
func (c *Client) sendVersioned(ctx context.Context, by *http.Client, r request) (*http.Response, error) {
	if c.version.Load() == nil {
		if err := c.Ping(ctx); err != nil {
			return nil, err
		}
	}
	r.path = "/v" + c.version.Load().String() + r.path
	return c.send(ctx, by, r)
}

// send sends a request, and returns an answer that is no error. The answer's body has to be closed.
func (c *Client) send(ctx context.Context, by *http.Client, r request) (*http.Response, error) {
	var body io.Reader
	if r.body != nil {
		text, err := json.Marshal(r.body)
		if err != nil {
			return nil, c.errorf(r.op(), "%v", err)
		}
		body = bytes.NewReader(text)
	}
	// The path is escaped already; the host is not used, but needed.
	req, err := http.NewRequestWithContext(ctx, r.method, "http://runtime"+r.path, body)
	if err != nil {
		return nil, c.errorf(r.op(), "%v", err)
	}
	req.URL.RawQuery = r.query.Encode()
	if body != nil {
		req.Header.Set("Content-Type", "application/json")
	}
	for name, value := range r.headers {
		req.Header.Set(name, value)
	}
	res, err := by.Do(req)
	if err != nil {
		return nil, c.failed(ctx, r.op(), err)
	}
	if res.StatusCode >= 400 {
		defer closeBody(res)
		return nil, c.refused(r.op(), res)
	}
	return res, nil
}

// op says what the call was for, without the version and IDs.
func (r request) op() string {
	words := strings.Split(strings.Trim(r.path, "/"), "/")
	if len(words) > 1 && strings.HasPrefix(words[0], "v1.") {
		words = words[1:]
	}
	return r.method + " /" + words[0] + last(words[1:])
}

func last(words []string) string {
	if len(words) < 2 {
		return ""
	}
	return "/…/" + words[len(words)-1]
}

// closeBody closes an answer's body after its short rest, so that the connection can be used again.
func closeBody(res *http.Response) {
	_, _ = io.CopyN(io.Discard, res.Body, maxMessage)
	_ = res.Body.Close()
}

// filters returns the query of filters.
func filters(f map[string][]string) url.Values {
	text, _ := json.Marshal(f) // has no error
	return url.Values{"filters": {string(text)}}
}
