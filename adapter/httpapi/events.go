package httpapi

import (
	"context"
	"encoding/json"
	"fmt"
	"net/http"
	"net/url"
	"time"

	"github.com/sonde-probe/sonde/engine"
	"github.com/sonde-probe/sonde/probe"
)

// events serves /v1/events. It returns when the caller has gone, is too slow to
// be written to, or the server ends.
func (s *Server) events(w http.ResponseWriter, r *http.Request) {
	target, snapshot, err := parseEvents(r.URL.RawQuery)
	if err != nil {
		refuse(w, http.StatusBadRequest, "%v", err)
		return
	}
	if !s.streams.take() {
		w.Header().Set("Retry-After", "5")
		refuse(w, http.StatusServiceUnavailable, "%d streams of events are open, which is the limit", MaxSubscribers)
		return
	}
	defer s.streams.giveBack()

	out := stream{w: w, control: http.NewResponseController(w)}
	if err := out.begin(); err != nil || r.Method == http.MethodHead {
		return
	}
	news := news{since: time.Now(), target: target, snapshot: snapshot, told: map[probe.ID]probe.Verdict{}}
	sub := s.config.Engine.Subscribe()
	defer sub.Close()
	for r.Context().Err() == nil {
		if err := pass(r.Context(), sub, &news, &out); err != nil {
			return
		}
	}
}

func parseEvents(query string) (target string, snapshot bool, err error) {
	v, err := url.ParseQuery(query)
	if err != nil {
		return "", false, fmt.Errorf("the query cannot be read: %w", err)
	}
	if err := known(v, "target", "snapshot"); err != nil {
		return "", false, err
	}
	snapshot, err = flag(v, "snapshot")
	return v.Get("target"), snapshot, err
}

// pass waits for one status and passes it on if it is news, or sends a heartbeat
// when none came. Its error is that of the connection.
func pass(ctx context.Context, sub *engine.Subscription, n *news, out *stream) error {
	until, cancel := context.WithDeadline(ctx, out.last.Add(Heartbeat))
	defer cancel()
	status, err := sub.Next(until)
	if err != nil {
		return out.beat()
	}
	if kind := n.kind(status); kind != "" {
		return out.send(kind, status)
	}
	if time.Since(out.last) >= Heartbeat { // much has changed that is not asked for
		return out.beat()
	}
	return nil
}

// news tells which statuses are events of a stream.
type news struct {
	since    time.Time // when the stream began
	target   string    // whose probes are asked for; empty: all
	snapshot bool
	told     map[probe.ID]probe.Verdict // what the caller knows, a few bytes a probe
}

// kind returns the type of the event that s is, or "" if it is none: an instance
// that changed and left the verdict as it was, say.
func (n *news) kind(s engine.Status) EventType {
	if n.target != "" && s.ID.Target != n.target {
		return ""
	}
	before, known := n.told[s.ID]
	if s.Removed {
		delete(n.told, s.ID)
		return RemovedEvent
	}
	n.told[s.ID] = s.Verdict
	switch {
	case known && before == s.Verdict:
		return ""
	case known || s.Since.After(n.since):
		return VerdictEvent
	case n.snapshot:
		return SnapshotEvent
	}
	return ""
}

// stream writes server-sent events.
type stream struct {
	w       http.ResponseWriter
	control *http.ResponseController
	id      uint64    // of the last event
	last    time.Time // when something was written last
}

func (s *stream) begin() error {
	h := s.w.Header()
	h.Set("Content-Type", "text/event-stream")
	h.Set("X-Accel-Buffering", "no") // nginx would hold events back
	return s.write(": sonde\n\n")
}

func (s *stream) beat() error { return s.write(": still here\n\n") }

func (s *stream) send(kind EventType, status engine.Status) error {
	p := named(status.ID)
	if kind != RemovedEvent {
		p = newProbe(status, probe.MaxDetail)
	}
	data, err := json.Marshal(p)
	if err != nil {
		return err
	}
	s.id++
	return s.write(fmt.Sprintf("event: %s\nid: %d\ndata: %s\n\n", kind, s.id, data))
}

// write sends text at once. The caller has WriteTimeout to take it, so that one
// who does not read frees the stream.
func (s *stream) write(text string) error {
	s.last = time.Now()
	s.control.SetWriteDeadline(s.last.Add(WriteTimeout)) // not every ResponseWriter can
	if _, err := s.w.Write([]byte(text)); err != nil {
		return err
	}
	return s.control.Flush()
}
