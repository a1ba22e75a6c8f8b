package manifests

import (
	"github.com/sonde-probe/sonde/config"
	"github.com/sonde-probe/sonde/config/document"
	"github.com/sonde-probe/sonde/internal/bytesize"
	"github.com/sonde-probe/sonde/internal/command"
	"github.com/sonde-probe/sonde/kube"
	runtime "github.com/sonde-probe/sonde/restart/container"
)

// Values of the flag --runtime.
const (
	asProcess = "process"
	inDocker  = "docker"
)

// contained converts a container to one of a container runtime. It also returns the obstacles that prevent this.
func contained(m kube.Manifest, c kube.Container) (container, []string) {
	in := m.Contained(c.Name)
	c.Target.Runtime = inDocker // commands of probes run inside the container
	p, obstacles := lifecycle(c, func(words []string) []string { return words })
	p.In = &runtime.Config{
		Image: c.Image, Pull: in.Pull, Command: expanded(c.Command, c.Target.Env), Args: expanded(c.Args, c.Target.Env), Env: c.Target.Env, Dir: c.Target.Dir,
		User: c.Target.User, Network: in.Network, Publish: in.Ports, Mounts: in.Mounts, Resources: runtime.Resources{Memory: in.Memory, CPUs: in.CPUs},
	}
	p.Lost = in.Lost
	obstacles = append(in.Obstacles, obstacles...)
	for _, err := range config.Separate(p.In.Check()) {
		obstacles = append(obstacles, err.Error())
	}
	return p, obstacles
}

// writeState writes the engine block with the state file that containers created by the engine need.
func (im *importer) writeState() {
	engine := im.doc.Block("engine")
	engine.Comment("Containers go on without the engine, and the next one finds them by this file.")
	engine.Set("state", "sonde.state")
	im.doc.Newline()
}

// contained writes the target of a container that the engine creates, as a comment if the manifest is not sufficient.
func (im *importer) contained(m kube.Manifest, c container) {
	doc := document.New()
	if c.Sidecar {
		im.sidecar(m, c)
	}
	target := doc.Block("target", c.Target.Name)
	im.unsupported(target, m.IgnoredOf[c.Name])
	for _, lost := range c.Lost {
		im.warn(target, "%s.", lost)
	}
	if c.LeftOut != "" {
		im.warn(target, "%s.", c.LeftOut)
	}
	if c.In.Network == "host" {
		if conflict := im.ports.add(c.Container); conflict != "" {
			im.warn(target, "%s.", conflict)
		}
	}
	writePorts(target, c.Target)
	writeUnit(target, c)
	target.Separate()
	writeContainer(target, c)
	writePreStop(target, c.Unit.PreStop)
	im.probes(target, c.Container, true)
	if c.Reason != "" {
		im.warn(&im.doc.Body, "Container %q is left out: %s.", c.Name, c.Reason)
		im.doc.CommentOut(doc)
		return
	}
	im.doc.Append(doc)
}

// writeContainer writes the container block.
func writeContainer(target *document.Body, c container) {
	in, limits := c.In, []document.Argument(nil)
	arguments := []document.Argument{
		{Name: "image", Value: in.Image}, {Name: "pull", Value: in.Pull}, {Name: "command", Value: in.Command}, {Name: "args", Value: in.Args},
		{Name: "env", Value: in.Env}, {Name: "working_dir", Value: in.Dir}, {Name: "user", Value: in.User}, {Name: "network", Value: in.Network},
		{Name: "ports", Value: in.Publish}, {Name: "mounts", Value: in.Mounts},
	}
	if in.Resources.Memory > 0 {
		limits = append(limits, document.Argument{Name: "memory", Value: bytesize.Size(in.Resources.Memory).String()})
	}
	if in.Resources.CPUs > 0 {
		limits = append(limits, document.Argument{Name: "cpus", Value: in.Resources.CPUs})
	}
	if len(limits) == 0 {
		target.BlockOf("container", arguments...)
		return
	}
	body := target.Block("container")
	body.SetAll(arguments...)
	body.BlockOf("resources", limits...)
}

// expanded returns words with the references that the kubelet replaces expanded.
func expanded(words []string, env map[string]string) []string {
	all := make([]string, len(words))
	for i, word := range words {
		all[i] = command.Expand(word, env)
	}
	return all
}
