package docker

import (
	"context"
	"errors"
	"net/http"
	"net/url"
	"strconv"
	"time"
)

// Spec is a container to create, as the API takes it.
type Spec struct {
	Image        string
	Entrypoint   []string            `json:",omitempty"` // of the image by default
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

// RestartPolicy says when a runtime starts a container again.
type RestartPolicy struct{ Name string }

// PortBinding is where the machine listens for a port of a container.
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

// Create creates a container, and returns its ID. A name that is in use is an ErrConflict, an image that is not there an ErrNotFound.
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

// createTimeout is for the creation, the start and the removal of a container, which copy and mount file systems.
const createTimeout = time.Minute

// Start starts a container that does not run. It is no error if it runs already.
func (c *Client) Start(ctx context.Context, id string) error {
	return c.callLong(ctx, request{method: http.MethodPost, path: "/containers/" + url.PathEscape(id) + "/start"}, createTimeout, nil)
}

// Stop asks a container to exit, and kills it after a grace period, which is rounded up to seconds. It is no error if it does not run.
func (c *Client) Stop(ctx context.Context, id string, grace time.Duration) error {
	return c.stop(ctx, id, "stop", grace)
}

// Restart stops a container as Stop does, and starts it.
func (c *Client) Restart(ctx context.Context, id string, grace time.Duration) error {
	return c.stop(ctx, id, "restart", grace)
}

func (c *Client) stop(ctx context.Context, id, how string, grace time.Duration) error {
	seconds := (max(grace, 0) + time.Second - 1) / time.Second
	r := request{method: http.MethodPost, path: "/containers/" + url.PathEscape(id) + "/" + how, query: url.Values{"t": {strconv.Itoa(int(seconds))}}}
	return c.callLong(ctx, r, seconds*time.Second+createTimeout, nil)
}

// Kill sends a signal, such as SIGTERM, to the first process of a container. It is an ErrConflict if it does not run.
func (c *Client) Kill(ctx context.Context, id, signal string) error {
	r := request{method: http.MethodPost, path: "/containers/" + url.PathEscape(id) + "/kill", query: url.Values{"signal": {signal}}}
	return c.call(ctx, r, nil)
}

// Remove removes a container with its anonymous volumes; one that runs only with force, which kills it. It is no error if it is not there.
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

// ErrChanged says that a container is not the instance any more that was meant.
var ErrChanged = errors.New("the container has exited or was started again meanwhile")

// IsSame reports whether a container is the same instance: it runs, and was not started again since.
func (c Container) IsSame(d Container) bool {
	return d.State.Running && c.ID == d.ID && c.State.Pid == d.State.Pid && c.State.StartedAt.Equal(d.State.StartedAt)
}

// Check returns an ErrChanged unless the container is still the same instance.
func (c *Client) Check(ctx context.Context, container Container) error {
	now, err := c.Inspect(ctx, container.ID)
	switch {
	case isNotFound(err), err == nil && !container.IsSame(now):
		return ErrChanged
	}
	return err
}

// OpenProcess opens the first process of an instance, or returns an ErrChanged.
func (c *Client) OpenProcess(ctx context.Context, container Container) (*Process, error) {
	p, err := openProcess(container.State.Pid, container.ID, container.State.StartedAt)
	if changed := c.Check(ctx, container); changed != nil { // after the process was opened: so it is that of the instance
		if err == nil {
			p.Close()
		}
		return nil, changed
	}
	return p, err
}
