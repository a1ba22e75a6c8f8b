package docker

import (
	"context"
	"errors"
	"net/http"
	"net/url"
	"strconv"
	"time"
)

// Spec is the specification of a container to create, in the form of the API.
type Spec struct {
	Image        string
	Entrypoint   []string            `json:",omitempty"` // default: that of the image
	Cmd          []string            `json:",omitempty"`
	Env          []string            `json:",omitempty"` // NAME=value
	User         string              `json:",omitempty"`
	WorkingDir   string              `json:",omitempty"`
	StopSignal   string              `json:",omitempty"`
	Labels       map[string]string   `json:",omitempty"`
	ExposedPorts map[string]struct{} `json:",omitempty"` // "8080/tcp"
	HostConfig   HostConfig
}

// HostConfig is the part of a Spec that concerns the machine.
type HostConfig struct {
	NetworkMode   string                   `json:",omitempty"`
	RestartPolicy RestartPolicy            `json:",omitzero"`
	PortBindings  map[string][]PortBinding `json:",omitempty"`
	Mounts        []Mount                  `json:",omitempty"`
	Memory        int64                    `json:",omitempty"` // bytes
	NanoCPUs      int64                    `json:"NanoCpus,omitempty"`
	PidsLimit     int64                    `json:",omitempty"`
}

// RestartPolicy determines when a runtime starts a container again.
type RestartPolicy struct{ Name string }

// PortBinding is an address at which the machine listens for a port of a container.
type PortBinding struct {
	HostIP   string `json:"HostIp,omitempty"`
	HostPort string
}

// Mount is a directory, file or volume inside a container.
type Mount struct {
	Type     string // bind, volume or tmpfs
	Source   string `json:",omitempty"`
	Target   string
	ReadOnly bool `json:",omitempty"`
}

// Create creates a container, and returns its ID. The error is an ErrConflict if the name is in use, and an ErrNotFound
// if the image does not exist.
func (c *Client) Create(ctx context.Context, name string, s Spec) (id string, err error) {
	var made struct {
		ID string `json:"Id"`
	}
	r := request{method: http.MethodPost, path: "/containers/create", body: s}
	if name != "" {
		r.query = url.Values{"name": {name}}
	}
	if err := c.callLong(ctx, r, createTimeout, &made); err != nil {
		return "", err
	}
	if made.ID == "" {
		return "", c.errorf(r.op(), "the runtime returned a container without an ID")
	}
	return made.ID, nil
}

// createTimeout is the timeout for creating, starting and removing a container, which copy and mount file systems.
const createTimeout = time.Minute

// Start starts a container. It returns no error if the container is already running.
func (c *Client) Start(ctx context.Context, id string) error {
	return c.callLong(ctx, request{method: http.MethodPost, path: "/containers/" + url.PathEscape(id) + "/start"}, createTimeout, nil)
}

// Stop asks a container to exit, and kills it after a grace period, which is rounded up to seconds. It returns no error
// if the container is not running.
func (c *Client) Stop(ctx context.Context, id string, grace time.Duration) error {
	return c.stop(ctx, id, "stop", grace)
}

// Restart stops a container like Stop, and starts it.
func (c *Client) Restart(ctx context.Context, id string, grace time.Duration) error {
	return c.stop(ctx, id, "restart", grace)
}

func (c *Client) stop(ctx context.Context, id, how string, grace time.Duration) error {
	seconds := (max(grace, 0) + time.Second - 1) / time.Second
	r := request{method: http.MethodPost, path: "/containers/" + url.PathEscape(id) + "/" + how, query: url.Values{"t": {strconv.Itoa(int(seconds))}}}
	return c.callLong(ctx, r, seconds*time.Second+createTimeout, nil)
}

// Kill sends a signal, such as SIGTERM, to the first process of a container. The error is an ErrConflict if the
// container is not running.
func (c *Client) Kill(ctx context.Context, id, signal string) error {
	r := request{method: http.MethodPost, path: "/containers/" + url.PathEscape(id) + "/kill", query: url.Values{"signal": {signal}}}
	return c.call(ctx, r, nil)
}

// Remove removes a container with its anonymous volumes. With force, it also removes a running container, which it
// kills. It returns no error if the container does not exist.
func (c *Client) Remove(ctx context.Context, id string, force bool) error {
	r := request{method: http.MethodDelete, path: "/containers/" + url.PathEscape(id), query: url.Values{"v": {"1"}}}
	if force {
		r.query.Set("force", "1")
	}
	err := c.callLong(ctx, r, createTimeout, nil)
	if isNotFound(err) {
		return nil
	}
	return err
}

// ErrChanged means that a container no longer runs the expected instance.
var ErrChanged = errors.New("the container has exited or was restarted in the meantime")

// IsSame reports whether d is the same instance as c: it is running, and was not started again.
func (c Container) IsSame(d Container) bool {
	return d.State.Running && c.ID == d.ID && c.State.Pid == d.State.Pid && c.State.StartedAt.Equal(d.State.StartedAt)
}

// Check returns ErrChanged unless the container is still the same instance.
func (c *Client) Check(ctx context.Context, container Container) error {
	now, err := c.Inspect(ctx, container.ID)
	switch {
	case isNotFound(err), err == nil && !container.IsSame(now):
		return ErrChanged
	}
	return err
}

// OpenProcess opens the first process of an instance, or returns ErrChanged.
func (c *Client) OpenProcess(ctx context.Context, container Container) (*Process, error) {
	p, err := openProcess(container.State.Pid, container.ID, container.State.StartedAt)
	if changed := c.Check(ctx, container); changed != nil { // checked after opening, so that the process belongs to the instance
		if err == nil {
			p.Close()
		}
		return nil, changed
	}
	return p, err
}
