package docker

import (
	"bufio"
	"context"
	"encoding/json"
	"io"
	"net/http"
	"strconv"
	"syscall"
	"time"
)

// event is a change of a container.
type event struct {
	action string // start, kill, die, oom, destroy, pause, unpause or rename
	id     string
	at     time.Time
	code   int            // exit status, for die; -1 if unknown
	signal syscall.Signal // for kill; 0 if unknown
}

// eventActions are the actions to subscribe to. The others are left out because each exec causes three of them. Podman
// has other names for two actions.
var eventActions = []string{"start", "kill", "die", "died", "oom", "destroy", "remove", "pause", "unpause", "rename"}

var eventFilters = filters(map[string][]string{"type": {"container"}, "event": eventActions})

// openEvents opens the stream of events.
func (c *Client) openEvents(ctx context.Context) (io.ReadCloser, error) {
	res, err := c.sendVersioned(ctx, &c.events, request{method: http.MethodGet, path: "/events", query: eventFilters})
	if err != nil {
		return nil, err
	}
	return res.Body, nil
}

// readEvents calls handle with each event of a stream, until the stream ends.
func readEvents(stream io.Reader, handle func(event)) error {
	lines := bufio.NewScanner(stream)
	lines.Buffer(nil, maxAnswer)
	for lines.Scan() {
		if e, ok := decodeEvent(lines.Bytes()); ok {
			handle(e)
		}
	}
	if err := lines.Err(); err != nil {
		return err
	}
	return io.ErrUnexpectedEOF // the daemon ends the stream when it stops
}

// decodeEvent returns the event of a line, or false unless it is an event of a container.
func decodeEvent(line []byte) (e event, ok bool) {
	var wire struct {
		Type, Action string
		Actor        struct {
			ID         string
			Attributes map[string]string
		}
		TimeNano int64 `json:"timeNano"`
	}
	if json.Unmarshal(line, &wire) != nil || wire.Type != "container" || wire.Actor.ID == "" {
		return e, false
	}
	e = event{action: wire.Action, id: wire.Actor.ID, at: time.Unix(0, wire.TimeNano), code: -1}
	switch e.action {
	case "died":
		e.action = "die"
	case "remove":
		e.action = "destroy"
	}
	for _, name := range []string{"exitCode", "containerExitCode"} {
		if n, err := strconv.Atoi(wire.Actor.Attributes[name]); err == nil {
			e.code = n
		}
	}
	if n, err := strconv.Atoi(wire.Actor.Attributes["signal"]); err == nil {
		e.signal = syscall.Signal(n)
	}
	return e, true
}
