package httpapi

import (
	"bufio"
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
)

// Bounds on what a Client takes from a server, in bytes.
const (
	MaxAnswer = 64 << 20
	MaxLine   = 1 << 20 // of a stream of events
)

// Client asks a running engine. It may be used by any number of goroutines at
// once.
type Client struct {
	Base  string       // where the engine listens: "http://127.0.0.1:9650"; default that
	Token string       // default: none
	HTTP  *http.Client // has client certificates and time limits; default http.DefaultClient
}

// Targets returns the targets that q asks for. An answer that is not 200 is an
// *Error; so it is for the other methods.
func (c *Client) Targets(ctx context.Context, q Query) (Targets, error) {
	return get[Targets](ctx, c, "/v1/targets", q.values())
}

// Target returns one target with its probes.
func (c *Client) Target(ctx context.Context, name string) (Target, error) {
	return get[Target](ctx, c, "/v1/targets/"+escape(name), nil)
}

// Stats returns the engine's counters.
func (c *Client) Stats(ctx context.Context) (Stats, error) {
	return get[Stats](ctx, c, "/v1/stats", nil)
}

// Follow says which events to get.
type Follow struct {
	Target   string // only of its probes; default: of all
	Snapshot bool   // begin with the state of each probe
}

// Events yields events as they come. It ends when ctx is done, without an error,
// or with the error that ended the stream; a server that ends is
// io.ErrUnexpectedEOF. The HTTP client must have no Timeout, which would end the
// stream.
func (c *Client) Events(ctx context.Context, f Follow) iter.Seq2[Event, error] {
	return func(yield func(Event, error) bool) {
		query := url.Values{}
		if f.Target != "" {
			query.Set("target", f.Target)
		}
		if f.Snapshot {
			query.Set("snapshot", "true")
		}
		err := c.follow(ctx, query, func(e Event) bool { return yield(e, nil) })
		if err != nil && ctx.Err() == nil {
			yield(Event{}, err)
		}
	}
}

// follow calls yield for each event until it returns false.
func (c *Client) follow(ctx context.Context, query url.Values, yield func(Event) bool) error {
	answer, err := c.ask(ctx, "/v1/events", query)
	if err != nil {
		return err
	}
	defer answer.Body.Close()
	lines := bufio.NewScanner(answer.Body)
	lines.Buffer(nil, MaxLine)
	var e Event
	for lines.Scan() {
		if lines.Text() == "" { // the end of an event, or of a comment
			if e.Type != "" && !yield(e) {
				return nil
			}
			e = Event{}
			continue
		}
		if err := e.read(lines.Text()); err != nil {
			return fmt.Errorf("/v1/events: %w", err)
		}
	}
	if err := lines.Err(); err != nil {
		return fmt.Errorf("/v1/events: %w", err)
	}
	return fmt.Errorf("/v1/events: %w", io.ErrUnexpectedEOF)
}

// read takes one line of an event.
func (e *Event) read(line string) (err error) {
	field, value, _ := strings.Cut(line, ":")
	value = strings.TrimPrefix(value, " ")
	switch field {
	case "event":
		e.Type = EventType(value)
	case "id":
		e.ID, err = strconv.ParseUint(value, 10, 64)
	case "data":
		err = json.Unmarshal([]byte(value), &e.Probe)
	}
	return err
}

func get[T any](ctx context.Context, c *Client, path string, query url.Values) (v T, err error) {
	answer, err := c.ask(ctx, path, query)
	if err != nil {
		return v, err
	}
	defer answer.Body.Close()
	if err := decode(answer.Body, &v); err != nil {
		return v, fmt.Errorf("%s: %w", path, err)
	}
	return v, nil
}

// ask sends a request. The caller closes the answer's body.
func (c *Client) ask(ctx context.Context, path string, query url.Values) (*http.Response, error) {
	base := c.Base
	if base == "" {
		base = "http://" + DefaultListen
	}
	address := strings.TrimSuffix(base, "/") + path
	if len(query) > 0 {
		address += "?" + query.Encode()
	}
	r, err := http.NewRequestWithContext(ctx, http.MethodGet, address, nil)
	if err != nil {
		return nil, err
	}
	if c.Token != "" {
		r.Header.Set("Authorization", "Bearer "+c.Token)
	}
	client := c.HTTP
	if client == nil {
		client = http.DefaultClient
	}
	answer, err := client.Do(r)
	if err != nil {
		return nil, err
	}
	if answer.StatusCode != http.StatusOK {
		defer answer.Body.Close()
		return nil, refusal(answer)
	}
	return answer, nil
}

// refusal returns an answer that is not 200 as an *Error.
func refusal(answer *http.Response) error {
	var f failure
	if decode(answer.Body, &f) != nil || f.Error.Message == "" {
		return &Error{Status: answer.StatusCode, Message: "the answer is not from this API: " + answer.Status}
	}
	f.Error.Status = answer.StatusCode
	return &f.Error
}

// decode reads JSON of at most MaxAnswer bytes.
func decode(r io.Reader, into any) error {
	limited := &io.LimitedReader{R: r, N: MaxAnswer}
	err := json.NewDecoder(limited).Decode(into)
	if err != nil && limited.N <= 0 {
		return errors.New("the answer is longer than 64 MiB")
	}
	return err
}

// escape writes a target's name as one part of a path. A name of dots must not
// be taken for the folder above.
func escape(name string) string {
	escaped := url.PathEscape(name)
	if strings.Trim(name, ".") == "" {
		return strings.ReplaceAll(escaped, ".", "%2E")
	}
	return escaped
}
