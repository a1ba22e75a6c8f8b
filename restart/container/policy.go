package container

import (
	"context"
	"fmt"

	"github.com/sonde-probe/sonde/internal/docker"
)

// WhoRestarts returns a sentence that says who starts the container again after a probe has failed: see decision 106.
// It queries the runtime, within the deadline of ctx.
func (c Config) WhoRestarts(ctx context.Context) string {
	if c.Owns() {
		return "Sonde makes another container"
	}
	found, err := c.find(ctx)
	switch {
	case err != nil:
		return fmt.Sprintf("its restart policy decides who restarts it, and cannot be read (%v): with a policy, Sonde ends its process and the runtime starts it again; without one, Sonde restarts it", err)
	case found.Restarts():
		return fmt.Sprintf("Sonde ends its process, and the runtime starts it again by the restart policy %q of %s", found.Policy, found.Name)
	}
	return fmt.Sprintf("Sonde restarts it, since %s has no restart policy", found.Name)
}

// find returns the existing container that the configuration selects.
func (c Config) find(ctx context.Context) (docker.Container, error) {
	socket, err := docker.Socket(c.Host)
	if err != nil {
		return docker.Container{}, fmt.Errorf("host %w", err)
	}
	client := docker.New(socket)
	defer client.Close()
	if c.Name != "" {
		return client.Inspect(ctx, c.Name)
	}
	list, err := client.List(ctx, c.Match)
	if err != nil {
		return docker.Container{}, err
	}
	var running []string
	for _, l := range list {
		if l.State == "running" {
			running = append(running, l.ID)
		}
	}
	if len(running) != 1 {
		return docker.Container{}, fmt.Errorf("%d running containers match", len(running))
	}
	return client.Inspect(ctx, running[0])
}
