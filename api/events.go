package api

import (
	"context"
	"encoding/json"
	"fmt"
	"net/http"
	"time"

	"github.com/sonde-probe/sonde/group"
	"github.com/sonde-probe/sonde/internal/listener"
	"github.com/sonde-probe/sonde/probe"
)

// events serves /v1/events. It returns when the client disconnects or does not read, when the server stops, or when the
// requested group is removed.
func (s *Server) events(w http.ResponseWriter, r *http.Request) {
	filter, ofTargets, err := s.parseEvents(r)
	if err != nil {
		respondError(w, err)
		return
	}
	if !s.streams.acquire() {
		w.Header().Set("Retry-After", "5")
		respondError(w, errorf(http.StatusServiceUnavailable, "too many event streams: the limit is %d", maxSubscribers))
		return
	}
	defer s.streams.release()
	listener.KeepOpen(r.Context())

	out := eventWriter{w: w, control: http.NewResponseController(w)}
	w.Header().Set("Content-Type", "text/event-stream")
	w.Header().Set("X-Accel-Buffering", "no") // nginx buffers events otherwise
	if err := out.write(": sonde\n\n"); err != nil || r.Method == http.MethodHead {
		return
	}
	filter.since = time.Now()
	changes := s.probeEvents
	if ofTargets {
		changes = s.targetEvents
	}
	from, end := changes(filter)
	defer end()
	for r.Context().Err() == nil && !filter.ended() {
		if err := forward(r.Context(), from, &out); err != nil {
			return
		}
	}
}

// parseEvents reads the query of /v1/events.
func (s *Server) parseEvents(r *http.Request) (filter eventFilter, ofTargets bool, err error) {
	query, err := parseFields(r.URL.RawQuery, "target", "targets", "snapshot", "group", "name", "label")
	if err != nil {
		return filter, false, err
	}
	if filter.target = query.Get("target"); filter.target != "" {
		if _, exists := s.config.Engine.Target(filter.target); !exists {
			return filter, false, errorf(http.StatusNotFound, "there is no target %q", filter.target)
		}
	}
	if filter.snapshot, err = parseFlag(query, "snapshot"); err != nil {
		return filter, false, err
	}
	if filter.selector, err = parseSelector(query); err != nil {
		return filter, false, err
	}
	if name := query.Get("group"); name != "" {
		if filter.group, err = s.config.groupOf(name); err != nil {
			return filter, false, err
		}
	}
	ofTargets, err = parseFlag(query, "targets")
	return filter, ofTargets, err
}

// source waits for a change and returns it as an event with its data. The type is empty if the change is not an event of
// the stream. The error is that of ctx.
type source func(ctx context.Context) (EventType, any, error)

// probeEvents returns the changes of probes.
func (s *Server) probeEvents(filter eventFilter) (from source, end func()) {
	changes := s.config.Engine.Subscribe()
	sent := map[probe.ID]probe.Verdict{}
	return func(ctx context.Context) (EventType, any, error) {
		status, err := changes.Next(ctx)
		if err != nil || filter.target != "" && status.ID.Target != filter.target {
			return "", nil, err
		}
		before, known := sent[status.ID]
		if removed, skip := filter.leaves(status.ID.Target, status.Labels, status.Removed, known); removed {
			delete(sent, status.ID)
			return RemovedEvent, newProbeID(status.ID), nil
		} else if skip {
			return "", nil, nil
		}
		sent[status.ID] = status.Verdict
		if known && before == status.Verdict { // only the instance has changed
			return "", nil, nil
		}
		p := newProbe(status, probe.MaxDetail)
		p.Labels = status.Labels
		return filter.eventType(VerdictEvent, known, status.Since), p, nil
	}, changes.Close
}

// targetEvents returns the changes of targets.
func (s *Server) targetEvents(filter eventFilter) (from source, end func()) {
	changes := s.config.Engine.SubscribeTargets()
	sent := map[string]struct{}{}
	return func(ctx context.Context) (EventType, any, error) {
		status, err := changes.Next(ctx)
		if err != nil || filter.target != "" && status.Target != filter.target {
			return "", nil, err
		}
		_, known := sent[status.Target]
		if removed, skip := filter.leaves(status.Target, status.Labels, status.Removed, known); removed {
			delete(sent, status.Target)
			return TargetRemovedEvent, Target{Name: status.Target}, nil
		} else if skip {
			return "", nil, nil
		}
		sent[status.Target] = struct{}{}
		kind := filter.eventType(TargetEvent, known, status.Since)
		if kind == SnapshotEvent {
			kind = TargetEvent
		}
		t := newTarget(status, probe.MaxDetail)
		s.config.Others.setOwner(&t, s.config.Others.stale())
		return kind, t, nil
	}, changes.Close
}

// forward waits for one change and sends it if it is an event, or sends a heartbeat if there was none. It returns errors
// of the connection.
func forward(ctx context.Context, next source, out *eventWriter) error {
	until, cancel := context.WithDeadline(ctx, out.last.Add(heartbeat))
	defer cancel()
	kind, data, err := next(until)
	if err != nil {
		return out.heartbeat()
	}
	if kind != "" {
		return out.send(kind, data)
	}
	if time.Since(out.last) >= heartbeat { // all changes meanwhile were not events of this stream
		return out.heartbeat()
	}
	return nil
}

// eventFilter decides which statuses are events of a stream.
type eventFilter struct {
	since    time.Time // start of the stream
	target   string    // only events of this target; empty: of all
	selector probe.Selector
	group    *group.Group // only events of its members; nil: of all
	snapshot bool
}

// ended reports whether the requested group was removed.
func (f *eventFilter) ended() bool { return f.group != nil && f.group.View().Removed }

// selects reports whether a target is in the stream. The members of a group are those by its current rule.
func (f *eventFilter) selects(target string, labels map[string]string) bool {
	return f.selector.Matches(target, labels) && (f.group == nil || f.group.View().Rule.Members.Matches(target, labels))
}

// leaves reports whether a probe or target leaves the stream, since it was removed or its target is no longer selected,
// and whether to skip the change, since it is not in the stream. known means that it was in the stream.
func (f *eventFilter) leaves(target string, labels map[string]string, removed, known bool) (leaves, skip bool) {
	if removed {
		leaves = known || f.group == nil && f.selector.SelectsAll()
		return leaves, !leaves
	}
	selected := f.selects(target, labels)
	return !selected && known, !selected && !known
}

// eventType returns the type of the event for a change: changed, if the probe or target is known to the stream or the
// change is newer than the stream, and otherwise the type of a snapshot, which is "" for a stream without one.
func (f *eventFilter) eventType(changed EventType, known bool, since time.Time) EventType {
	switch {
	case known || since.After(f.since):
		return changed
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

func (s *eventWriter) send(kind EventType, data any) error {
	text, err := json.Marshal(data)
	if err != nil {
		return err
	}
	s.id++
	return s.write(fmt.Sprintf("event: %s\nid: %d\ndata: %s\n\n", kind, s.id, text))
}

// write sends text immediately. A client that does not read for writeTimeout is disconnected.
func (s *eventWriter) write(text string) error {
	s.last = time.Now()
	s.control.SetWriteDeadline(s.last.Add(writeTimeout)) // fails only if the ResponseWriter has no deadlines
	if _, err := s.w.Write([]byte(text)); err != nil {
		return err
	}
	return s.control.Flush()
}
