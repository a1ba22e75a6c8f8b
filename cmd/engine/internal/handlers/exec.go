package handlers

import (
	"context"
	"sync"

	execprobe "github.com/sonde-probe/sonde/builtin/exec"
	"github.com/sonde-probe/sonde/internal/docker"
	"github.com/sonde-probe/sonde/probe"
	"github.com/sonde-probe/sonde/restart/container"
)

// execConfig configures an exec block.
type execConfig struct {
	execprobe.Config
	OnHost bool `hcl:"on_host,optional" doc:"runs the command on the machine of the engine although the target is a container. By default it runs inside the container, with its environment, directory and user" default:"false"`
}

// exec runs a command inside the container of its target, or on this machine if the target is not a container.
type exec struct {
	probe.Handler // runs the command on this machine
	config        execprobe.Config
	runtimes      *container.Runtimes // nil without an engine
	inside        sync.Map            // maps probe.Target.Runtime to a probe.Handler
}

// newExec returns a constructor of handlers that share the runtimes. runtimes is nil without an engine.
func newExec(runtimes *container.Runtimes) func(execConfig) (probe.Handler, error) {
	return func(c execConfig) (probe.Handler, error) {
		local, err := execprobe.New(c.Config)
		if err != nil || c.OnHost {
			return local, err
		}
		return &exec{Handler: local, config: c.Config, runtimes: runtimes}, nil
	}
}

// Probe makes an attempt.
func (h *exec) Probe(ctx context.Context, t probe.Target) probe.Result {
	switch {
	case t.Runtime == "":
		return h.Handler.Probe(ctx, t)
	case h.runtimes == nil:
		return probe.Broken(probe.ReasonRuntimeNoContainer, "the command runs inside the container, which only a running engine can reach: use sonde explain, or set on_host = true")
	}
	inside, known := h.inside.Load(t.Runtime)
	if !known {
		socket, err := docker.Socket(container.HostOf(t.Runtime))
		if err != nil {
			return probe.Broken(probe.ReasonRuntimeUnavailable, "%v", err)
		}
		made, err := container.NewExec(h.runtimes, socket, h.config)
		if err != nil {
			return probe.Broken(probe.ReasonRuntimeFailed, "%v", err)
		}
		inside, _ = h.inside.LoadOrStore(t.Runtime, made)
	}
	return inside.(probe.Handler).Probe(ctx, t)
}
