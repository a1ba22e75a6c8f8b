// Package docker is a client of the Docker Engine API, as served by Docker and Podman at a Unix
// socket: the calls that a container driver needs, and a watch of the containers of a socket.
//
//	docker.go         Client: calls, the API version, limits
//	socket.go         the sockets of runtimes
//	errors.go         typed errors
//	container.go      Container: inspect and list
//	lifecycle.go      create, start, restart, kill and remove
//	image.go          pull
//	stream.go         the multiplexed stream of outputs, and logs
//	exec.go           commands inside a container
//	process_linux.go  signals to exactly one process, by a pidfd
//	process_other.go  the same on other systems: not supported
//	events.go         the stream of events
//	watch.go          Watch: the containers of a socket, and their followers
//	sync.go           updates of a Watch: inspect after events, and lists
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

// Limits of the API's responses, and of calls.
const (
	maxAnswer  = 1 << 20  // bytes of one response
	maxList    = 32 << 20 // bytes of a list: 32 KiB for each of 1,000 containers
	maxMessage = 4 << 10  // bytes of an error message

	maxCalls  = 8  // connections of short calls; further calls wait. The next two limits work alike
	maxLong   = 64 // connections of long calls: starts and stops
	maxExecs  = 32 // connections of commands that run inside containers
	idleConns = 4

	// callTimeout is the timeout of short calls. Docker on a loaded machine takes up to a second to respond.
	callTimeout = 10 * time.Second
)

// The supported versions of the API. Docker Engine 29 rejects versions before 1.44; Podman 4 and Docker Engine 20.10
// have 1.41. Docker Engine 19.03 and Podman 3 have 1.40.
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

// Client calls the API at one Unix socket. It is safe for concurrent use.
type Client struct {
	socket  string
	short   http.Client // calls with an immediate response; connections are kept
	long    http.Client // long calls; each has its own connection, as for the next two clients
	execs   http.Client // outputs of commands
	events  http.Client // the event stream, and pings, which never wait for a connection
	version atomic.Pointer[version]
}

// New returns a client of the runtime that listens at a Unix socket. socket is a path. New does not connect.
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

// Close closes idle connections.
func (c *Client) Close() { c.short.CloseIdleConnections() }

// Ping gets the API version of the runtime, which later calls use. It returns an error if the version is too old.
func (c *Client) Ping(ctx context.Context) error {
	ctx, cancel := context.WithTimeout(ctx, callTimeout)
	defer cancel()
	// Ping uses a connection of its own: a kept one works after the socket is gone, and the next call may need a new
	// one.
	res, err := c.send(ctx, &c.events, request{method: http.MethodGet, path: "/_ping"})
	if err != nil {
		return err
	}
	defer closeBody(res)
	v, ok := parseVersion(res.Header.Get("Api-Version"))
	if !ok {
		return c.errorf("ping", "%s is not the socket of a container runtime: the response has no Api-Version header", c.socket)
	}
	if v.before(minVersion) {
		return c.errorf("ping", "the container runtime at %s has API version %v, but Sonde needs at least %v: upgrade to Docker Engine 19.03 or Podman 3, or later", c.socket, v, minVersion)
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

// call makes a short call, and decodes its response if out is not nil.
func (c *Client) call(ctx context.Context, r request, out any) error {
	return c.callBy(ctx, &c.short, r, callTimeout, out)
}

// callLong is call for an operation that the runtime completes before it responds.
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
		return c.errorf(r.op(), "the response exceeds %d bytes", limit)
	}
	if err := json.Unmarshal(text, out); err != nil {
		return c.errorf(r.op(), "invalid response: %v", err)
	}
	return nil
}

// sendVersioned sends a request with the API version in its path. It first gets the version if it is unknown.
func (c *Client) sendVersioned(ctx context.Context, by *http.Client, r request) (*http.Response, error) {
	if c.version.Load() == nil {
		if err := c.Ping(ctx); err != nil {
			return nil, err
		}
	}
	r.path = "/v" + c.version.Load().String() + r.path
	return c.send(ctx, by, r)
}

// send sends a request, and returns the response unless it is an error. The caller must close the response's body.
func (c *Client) send(ctx context.Context, by *http.Client, r request) (*http.Response, error) {
	var body io.Reader
	if r.body != nil {
		text, err := json.Marshal(r.body)
		if err != nil {
			return nil, c.errorf(r.op(), "%v", err)
		}
		body = bytes.NewReader(text)
	}
	// The path is escaped already; the host is required but not used.
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

// op returns a description of the call for errors, without the version and IDs.
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

// closeBody reads the short rest of a response's body and closes it, so that the connection can be reused.
func closeBody(res *http.Response) {
	_, _ = io.CopyN(io.Discard, res.Body, maxMessage)
	_ = res.Body.Close()
}

// filters returns the query of filters.
func filters(f map[string][]string) url.Values {
	text, _ := json.Marshal(f) // never fails
	return url.Values{"filters": {string(text)}}
}
