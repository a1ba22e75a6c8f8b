package api

import (
	"bufio"
	"cmp"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"iter"
	"net/http"
	"net/url"
	"strconv"
	"strings"
	"time"

	"github.com/sonde-probe/sonde/probe"
)

// Limits on what a Client reads, in bytes.
const (
	maxResponse = 64 << 20
	maxLine     = 1 << 20 // of an event stream
)

// Client is a client of the API of a running engine. It is safe for concurrent use by
// multiple goroutines.
type Client struct {
	Base  string       // URL of the engine; default "http://127.0.0.1:9650"
	Token string       // default: none
	HTTP  *http.Client // for client certificates and timeouts; default http.DefaultClient

	// Engine is called with an engine's description of itself (its address, user and files) each time that the engine was
	// asked for a change. It must be safe for concurrent use by multiple goroutines. Default: nothing is called.
	Engine func(engine string)
}

// Targets returns a page of the targets that match q. For the next page, set q.After to Targets.Next. Like the other
// methods, it returns an *Error if the response has a status other than 200, and a different error if the response is
// not from an engine, whatever its status.
func (c *Client) Targets(ctx context.Context, q Query) (Targets, error) {
	return get[Targets](ctx, c, "/v1/targets", q.values())
}

// Target returns one target with its probes.
func (c *Client) Target(ctx context.Context, name string) (Target, error) {
	return get[Target](ctx, c, "/v1/targets/"+escape(name), nil)
}

// History returns the latest transitions of a target.
func (c *Client) History(ctx context.Context, name string) (History, error) {
	return get[History](ctx, c, "/v1/targets/"+escape(name)+historySuffix, nil)
}

// Groups returns the groups, without their members.
func (c *Client) Groups(ctx context.Context) (GroupList, error) {
	return get[GroupList](ctx, c, "/v1/groups", nil)
}

// Gateways returns the status of each gateway.
func (c *Client) Gateways(ctx context.Context) (GatewayList, error) {
	return get[GatewayList](ctx, c, "/v1/gateways", nil)
}

// Discoveries returns the status of each source of targets.
func (c *Client) Discoveries(ctx context.Context) (DiscoveryList, error) {
	return get[DiscoveryList](ctx, c, "/v1/discoveries", nil)
}

// Maintenances returns the current and next maintenances.
func (c *Client) Maintenances(ctx context.Context) (MaintenanceList, error) {
	return get[MaintenanceList](ctx, c, "/v1/maintenance", nil)
}

// Cluster returns the state of the engine's cluster. The error is an *Error with status 404 if the engine is not in a
// cluster.
func (c *Client) Cluster(ctx context.Context) (Cluster, error) {
	return get[Cluster](ctx, c, "/v1/cluster", nil)
}

// Group returns a group with up to MaxListed members, starting after a name.
func (c *Client) Group(ctx context.Context, name, after string) (Group, error) {
	query := url.Values{}
	if after != "" {
		query.Set("after", after)
	}
	return get[Group](ctx, c, "/v1/groups/"+escape(name), query)
}

// AwaitGroup waits until a group has a version other than version, for at most wait, which is limited to one minute, and
// returns the group with its first members. The HTTP client's Timeout must not be shorter.
func (c *Client) AwaitGroup(ctx context.Context, name string, version uint64, wait time.Duration) (Group, error) {
	query := url.Values{"version": {strconv.FormatUint(version, 10)}, "wait": {wait.String()}}
	return get[Group](ctx, c, "/v1/groups/"+escape(name), query)
}

// Stats returns the engine's counters.
func (c *Client) Stats(ctx context.Context) (Stats, error) {
	return get[Stats](ctx, c, "/v1/stats", nil)
}

// Reload makes the engine read its configuration again, and returns the result, with Reload.Error if the engine keeps
// the previous configuration. force skips reload_guard. Reload needs the token, or a connection to the engine's unix
// socket.
func (c *Client) Reload(ctx context.Context, force bool) (Reload, error) {
	query := url.Values{}
	if force {
		query.Set("force", "true")
	}
	return post[Reload](ctx, c, "/v1/reload", query)
}

// Plan returns what a reload would do, with the files that the engine was started with or, for the engine's user only,
// with other files, which the engine reads. It needs the same access as Reload.
func (c *Client) Plan(ctx context.Context, paths []string) (Plan, error) {
	return post[Plan](ctx, c, "/v1/plan", url.Values{"config": paths})
}

// Operate requests an operation on a target, and returns when the engine has begun it. by is the operator's name. It
// needs the same access as Reload.
func (c *Client) Operate(ctx context.Context, target string, o Operation, by string) (Operated, error) {
	return post[Operated](ctx, c, "/v1/targets/"+escape(target)+"/"+string(o), url.Values{"by": {by}})
}

// Beat sends a beat of a target: "ok", "fail", "start" or an exit status. detail describes a failure. Client.Token must
// be the token of the target's beat block.
func (c *Client) Beat(ctx context.Context, target, status, detail string) (BeatTaken, error) {
	return call[BeatTaken](ctx, c, http.MethodPost, beatPath+escape(target), url.Values{"status": {status}}, strings.NewReader(detail))
}

// EventOptions selects the events of a stream.
type EventOptions struct {
	Target   string // only events of this target; default: of all targets
	Targets  bool   // events of targets, instead of those of probes
	Snapshot bool   // start with the current state of each probe, or of each target

	Group  string   // only members of a group; the stream ends when the group is removed
	Names  []string // as in a Query
	Labels []string // as in a Query; a target that no longer matches is reported as removed
}

// Events yields events as they arrive. It ends without an error when ctx is done, or with the error that ended the
// stream, which is io.ErrUnexpectedEOF if the server stopped. The HTTP client must have no Timeout, which would end the
// stream.
func (c *Client) Events(ctx context.Context, o EventOptions) iter.Seq2[Event, error] {
	return func(yield func(Event, error) bool) {
		query := Query{Group: o.Group, Names: o.Names, Labels: o.Labels}.values()
		if o.Target != "" {
			query.Set("target", o.Target)
		}
		if o.Targets {
			query.Set("targets", "true")
		}
		if o.Snapshot {
			query.Set("snapshot", "true")
		}
		err := c.stream(ctx, query, func(e Event) bool { return yield(e, nil) })
		if err != nil && ctx.Err() == nil {
			yield(Event{}, err)
		}
	}
}

// stream calls yield for each event until it returns false.
func (c *Client) stream(ctx context.Context, query url.Values, yield func(Event) bool) error {
	response, err := c.do(ctx, http.MethodGet, "/v1/events", query, nil)
	if err != nil {
		return err
	}
	defer response.Body.Close()
	lines := bufio.NewScanner(response.Body)
	lines.Buffer(nil, maxLine)
	var e Event
	for lines.Scan() {
		if lines.Text() == "" { // ends an event or a comment
			if e.Type != "" && !yield(e) {
				return nil
			}
			e = Event{}
			continue
		}
		if err := e.parseLine(lines.Text()); err != nil {
			return fmt.Errorf("/v1/events: %w", err)
		}
	}
	if err := lines.Err(); err != nil {
		return fmt.Errorf("/v1/events: %w", err)
	}
	return fmt.Errorf("/v1/events: %w", io.ErrUnexpectedEOF)
}

// parseLine sets the field of one line of an event.
func (e *Event) parseLine(line string) (err error) {
	field, value, _ := strings.Cut(line, ":")
	value = strings.TrimPrefix(value, " ")
	switch field {
	case "event":
		e.Type = EventType(value)
	case "id":
		e.ID, err = strconv.ParseUint(value, 10, 64)
	case "data":
		if e.Type == TargetEvent || e.Type == TargetRemovedEvent {
			err = json.Unmarshal([]byte(value), &e.Target)
		} else {
			err = json.Unmarshal([]byte(value), &e.Probe)
		}
	}
	return err
}

// get sends a GET request, and returns the body of the response.
func get[T any](ctx context.Context, c *Client, path string, query url.Values) (T, error) {
	return call[T](ctx, c, http.MethodGet, path, query, nil)
}

// post sends a POST request, and returns the body of the response.
func post[T any](ctx context.Context, c *Client, path string, query url.Values) (T, error) {
	return call[T](ctx, c, http.MethodPost, path, query, nil)
}

// call sends a request, and returns the body of its response.
func call[T any](ctx context.Context, c *Client, method, path string, query url.Values, body io.Reader) (v T, err error) {
	response, err := c.do(ctx, method, path, query, body)
	if err != nil {
		return v, err
	}
	defer response.Body.Close()
	if err := decode(response.Body, &v); err != nil {
		return v, fmt.Errorf("%s: %w", path, err)
	}
	return v, nil
}

// do sends a request. The caller must close the response's body. Status 422 is not an error of a POST: the body says why
// the engine has changed nothing.
func (c *Client) do(ctx context.Context, method, path string, query url.Values, body io.Reader) (*http.Response, error) {
	address := strings.TrimSuffix(cmp.Or(c.Base, "http://"+DefaultListen), "/") + path
	if len(query) > 0 {
		address += "?" + query.Encode()
	}
	r, err := http.NewRequestWithContext(ctx, method, address, body)
	if err != nil {
		return nil, err
	}
	if c.Token != "" {
		r.Header.Set("Authorization", "Bearer "+c.Token)
	}
	client := *cmp.Or(c.HTTP, http.DefaultClient)
	client.CheckRedirect = func(*http.Request, []*http.Request) error { return http.ErrUseLastResponse } // the token is for Base only
	response, err := client.Do(r)
	if err != nil {
		return nil, err
	}
	switch engine := response.Header.Get(HeaderEngine); {
	case engine == "":
		response.Body.Close()
		return nil, notEngine(response)
	case engine != anyEngine && c.Engine != nil:
		c.Engine(probe.OneLine(engine, maxSelf))
	}
	if response.StatusCode == http.StatusOK || method == http.MethodPost && response.StatusCode == http.StatusUnprocessableEntity {
		return response, nil
	}
	defer response.Body.Close()
	var failed errorBody
	if decode(response.Body, &failed) != nil || failed.Error.Message == "" {
		failed.Error.Message = http.StatusText(response.StatusCode)
	}
	failed.Error.Status = response.StatusCode
	return nil, &failed.Error
}

// notEngine returns the error of a response without HeaderEngine, which comes from another kind of server.
func notEngine(r *http.Response) error {
	why := fmt.Sprintf("its response %q has no header %s", probe.OneLine(r.Status, maxForeign), HeaderEngine)
	if to, err := r.Location(); err == nil {
		why += ", and is a redirect to " + probe.OneLine(to.Host, maxForeign) + ", which is not followed"
	}
	return fmt.Errorf("%s is not a Sonde engine: %s; use the address of an engine", r.Request.URL.Host, why)
}

// maxForeign bounds each text of another server in an error, in bytes.
const maxForeign = 256

// decode decodes JSON of at most maxResponse bytes.
func decode(r io.Reader, into any) error {
	limited := &io.LimitedReader{R: r, N: maxResponse}
	err := json.NewDecoder(limited).Decode(into)
	if err != nil && limited.N <= 0 {
		return errors.New("response is larger than 64 MiB")
	}
	return err
}

// escape returns a target's name as one path element. A name that consists of dots must not be taken for the parent
// directory.
func escape(name string) string {
	escaped := url.PathEscape(name)
	if strings.Trim(name, ".") == "" {
		return strings.ReplaceAll(escaped, ".", "%2E")
	}
	return escaped
}
