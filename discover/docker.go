package discover

import (
	"context"
	"errors"
	"fmt"
	"maps"
	"regexp"
	"slices"
	"strings"

	"github.com/sonde-probe/sonde/internal/docker"
	"github.com/sonde-probe/sonde/internal/wake"
	"github.com/sonde-probe/sonde/probe"
)

// Docker finds containers of Docker and Podman by their labels. The key of an element is the name of the container. The
// element has no address; its port is the port that the container exposes, if it exposes exactly one; its Meta has the
// labels whose names begin with LabelPrefix.
type Docker struct {
	Match map[string]string `hcl:"match" doc:"labels that a container must have, all of them"`
	Host  string            `hcl:"host,optional" doc:"Unix socket of the container runtime, such as unix:///run/podman/podman.sock, or its path" default:"as in a container block"`
}

// LabelPrefix is the prefix of the labels that configure how a container is probed.
const LabelPrefix = "sonde."

// labelOwner is the label of containers that engines have created. These are targets already.
const labelOwner = LabelPrefix + "engine"

// Check validates the configuration. It returns probe.FieldErrors, or nil. It does not contact the runtime.
func (d Docker) Check() error {
	var wrong probe.FieldErrors
	if len(d.Match) == 0 {
		wrong.Add("match", "must not be empty; write the labels that a container must have: match = { \"sonde.enable\" = \"true\" }")
	}
	for _, name := range slices.Sorted(maps.Keys(d.Match)) {
		if name == "" || strings.Contains(name, "=") {
			wrong.Add("match", "has the label %q; a name must not be empty or contain =", name)
		}
	}
	if err := docker.CheckHost(d.Host); err != nil {
		wrong.Add("host", "%v", err)
	}
	return wrong.Err()
}

// Run implements Source. Events of the runtime report changes immediately, and a list each minute corrects them.
func (d Docker) Run(ctx context.Context, found func(Elements, error)) {
	socket, err := docker.Socket(d.Host)
	if err != nil {
		found(nil, fmt.Errorf("host %w", err))
		<-ctx.Done()
		return
	}
	client, changed := docker.New(socket), wake.New()
	defer client.Close()
	watch := docker.NewWatch(client)
	f := watch.Follow(docker.Selector{Labels: d.Match}, changed.Set)
	defer f.Close()
	ended := make(chan struct{})
	go func() {
		defer close(ended)
		_ = watch.Run(ctx) // returns only when ctx is done
	}()
	for ctx.Err() == nil {
		select {
		case <-ctx.Done():
		case <-changed:
			switch v := f.View(); {
			case v.Lost == nil && v.IsListed:
				found(elementsOf(v.Containers))
			case v.Lost != nil && !errors.Is(v.Lost, docker.ErrNotListed):
				found(nil, v.Lost)
			}
		}
	}
	<-ended
}

// looksLikeID matches names that could be mistaken for the ID of a container.
var looksLikeID = regexp.MustCompile(`^[0-9a-f]{12,64}$`)

// elementsOf converts containers, including stopped ones, to elements.
func elementsOf(containers []docker.Seen) (Elements, error) {
	a := &answer{Elements: Elements{}}
	for _, c := range containers {
		if _, isOwned := c.Labels[labelOwner]; isOwned {
			continue
		}
		e := Element{Meta: map[string]string{}}
		if len(c.Exposed) == 1 {
			e.Port = c.Exposed[0]
		}
		longest := 0
		for name, value := range c.Labels {
			if strings.HasPrefix(name, LabelPrefix) {
				e.Meta[name] = value
				longest = max(longest, len(name)+len(value))
			}
		}
		switch {
		case c.Name == "" || len(c.Name) > maxKey || looksLikeID.MatchString(c.Name):
			a.leaveOut("container name %.80q is empty, too long, or looks like an ID: rename the container", c.Name)
		case len(e.Meta) > maxLabels || longest > maxLabel:
			a.leaveOut("container %s has more than %d labels %s*, or one with more than %d bytes", c.Name, maxLabels, LabelPrefix, maxLabel)
		case len(a.Elements) == MaxElements:
			return nil, fmt.Errorf("there are more than %d containers", MaxElements)
		default:
			a.Elements[c.Name] = e
		}
	}
	return a.Elements, a.err()
}
