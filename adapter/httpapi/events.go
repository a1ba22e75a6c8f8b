package httpapi

import (
	"context"
	"encoding/json"
	"fmt"
	"net/http"
	"time"

	"github.com/sonde-probe/sonde/engine"
	"github.com/sonde-probe/sonde/probe"
)

// events serves /v1/events. It returns when the client has gone or does not read, or
// when the server stops.
func (s *Server) events(w http.ResponseWriter, r *http.Request) {
	query, err := parseFields(r.URL.RawQuery, "target", "snapshot")
	snapshot := false
	if err == nil {
		snapshot, err = parseFlag(query, "snapshot")
	}
	if err != nil {
		respondError(w, http.StatusBadRequest, "%v", err)
		return
	}
	if !s.streams.acquire() {
		w.Header().Set("Retry-After", "5")
		respondError(w, http.StatusServiceUnavailable, "too many event streams: the limit is %d", MaxSubscribers)
		return
	}
	defer s.streams.release()
	if mark, ok := r.Context().Value(markerKey{}).(func()); ok { // not without Serve
		mark()
	}

	out := eventWriter{w: w, control: http.NewResponseController(w)}
	w.Header().Set("Content-Type", "text/event-stream")
	w.Header().Set("X-Accel-Buffering", "no") // nginx buffers events otherwise
	if err := out.write(": sonde\n\n"); err != nil || r.Method == http.MethodHead {
		return
	}
	filter := eventFilter{since: time.Now(), target: query.Get("target"), snapshot: snapshot, sent: map[probe.ID]probe.Verdict{}}
	sub := s.config.Engine.Subscribe()
	defer sub.Close()
	for r.Context().Err() == nil {
		if err := forward(r.Context(), sub, &filter, &out); err != nil {
			return
		}
	}
}

// forward waits for one status and sends it if it is an event, or sends a heartbeat
// when there was none. It returns errors of the connection.
func forward(ctx context.Context, sub *engine.Subscription, filter *eventFilter, out *eventWriter) error {
	until, cancel := context.WithDeadline(ctx, out.last.Add(Heartbeat))
	defer cancel()
	status, err := sub.Next(until)
	if err != nil {
		return out.heartbeat()
	}
	if kind := filter.eventType(status); kind != "" {
		return out.send(kind, status)
	}
	if time.Since(out.last) >= Heartbeat { // only changes that are not events of this stream
		return out.heartbeat()
	}
	return nil
}

// eventFilter decides which statuses are events of a stream.
type eventFilter struct {
	since    time.Time // start of the stream
	target   string    // only probes of this target; empty: of all
	snapshot bool
	sent     map[probe.ID]probe.Verdict // the last verdict sent, a few bytes for each probe
}

// eventType returns the type of the event for a status, or "" for none, such as
// when the instance has changed and the verdict has not.
func (f *eventFilter) eventType(s engine.Status) EventType {
	if f.target != "" && s.ID.Target != f.target {
		return ""
	}
	before, known := f.sent[s.ID]
	if s.Removed {
		delete(f.sent, s.ID)
		return RemovedEvent
	}
	f.sent[s.ID] = s.Verdict
	switch {
	case known && before == s.Verdict:
		return ""
	case known || s.Since.After(f.since):
		return VerdictEvent
	case f.snapshot:
		return SnapshotEvent
	}
	return ""
}

// eventWriter writes server-sent events.
type eventWriter struct {
	w       http.ResponseWriter
	control *http.ResponseController
	id      uint64    // of the previous event
	last    time.Time // time of the last write
}

func (s *eventWriter) heartbeat() error { return s.write(": heartbeat\n\n") }

func (s *eventWriter) send(kind EventType, status engine.Status) error {
	p := newProbeID(status.ID)
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

// write sends text at once. A client that does not read for WriteTimeout is
// disconnected.
func (s *eventWriter) write(text string) error {
	s.last = time.Now()
	s.control.SetWriteDeadline(s.last.Add(WriteTimeout)) // an error means that the ResponseWriter has no deadlines
	if _, err := s.w.Write([]byte(text)); err != nil {
		return err
	}
	return s.control.Flush()
}
