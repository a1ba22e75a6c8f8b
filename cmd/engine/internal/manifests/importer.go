package manifests

import (
	"cmp"
	"fmt"
	"slices"
	"strings"
	"time"

	"github.com/sonde-probe/sonde/cmd/engine/internal/embedded"
	"github.com/sonde-probe/sonde/config"
	"github.com/sonde-probe/sonde/config/document"
	"github.com/sonde-probe/sonde/kube"
	"github.com/sonde-probe/sonde/probe"
	"github.com/sonde-probe/sonde/restart"
)

// importer writes manifests as a configuration.
type importer struct {
	flags    *flags
	handlers kube.Handlers
	doc      *document.Document
	sources  map[string]string // the container of each target, by the target's name
	ports    ports
	warnings []string
	errs     []error

	first bool   // no manifest has been written yet
	from  string // the current manifest or container: "web.yaml:1: Deployment shop/web"
}

func newImporter(f *flags) *importer {
	im := &importer{flags: f, handlers: newHandlers(new(grpcPlugin), probe.Mended), doc: document.New(), sources: map[string]string{}, ports: ports{}, first: true}
	if _, err := embedded.GRPC(); err == nil { // the plugin validates the probe when the configuration is checked
		im.handlers["grpc"] = func(kube.Action) (probe.Handler, error) { return probe.HandlerFunc(nil), nil }
	}
	return im
}

// warn writes a comment, and adds it to the warnings.
func (im *importer) warn(body *document.Body, format string, a ...any) {
	body.Comment(format, a...)
	im.warnings = append(im.warnings, im.from+": "+fmt.Sprintf(format, a...))
}

// manifest writes the targets of one manifest.
func (im *importer) manifest(m kube.Manifest) {
	im.from = m.Position + ": " + m.String()
	if !im.first {
		im.doc.Newline()
	}
	im.first = false
	im.doc.Comment("%s, from %s", m, m.Position)
	if m.Pod == nil {
		im.warn(&im.doc.Body, "Ignored: objects of this kind are not imported.")
		return
	}
	containers, err := im.containers(&m)
	if err != nil {
		for _, err := range config.Separate(err) {
			im.errs = append(im.errs, fmt.Errorf("%s: %w", im.from, err))
		}
		return
	}
	im.unsupported(&im.doc.Body, m.Ignored)
	readiness, scheduling := gates(m)
	if readiness != "" {
		im.warn(&im.doc.Body, "The readiness gates %s do not count, since nothing sets conditions here: add a readiness probe of what sets them, or one with beat that it reports to.", readiness)
	}
	if scheduling != "" {
		im.warn(&im.doc.Body, "The scheduling gates %s do not count: the containers are started and probed at once.", scheduling)
	}
	if im.flags.runtime == inDocker && m.SharesNetwork() {
		im.warn(&im.doc.Body, "The containers of this pod do not share a network, so that none reaches another one at localhost: give them a network of the runtime, in which they have names.")
	}
	for _, c := range containers {
		im.from = m.Position + ": " + m.String() + ": container " + c.Name
		im.container(m, c)
	}
}

// containers returns the containers of a manifest, in the order in which they start.
func (im *importer) containers(m *kube.Manifest) ([]container, error) {
	if im.flags.runtime == asProcess {
		return im.flags.entrypoints.containers(*m)
	}
	m.ForContainers()
	return inOrder(*m, func(c kube.Container) (container, []string) { return contained(*m, c) })
}

func (im *importer) unsupported(body *document.Body, fields []string) {
	if len(fields) > 0 {
		im.warn(body, "Ignored fields: %s.", listFields(fields))
	}
}

// container writes the target of a manifest's container.
func (im *importer) container(m kube.Manifest, c container) {
	im.doc.Newline()
	if len(c.Target.Name) > probe.MaxTargetName {
		im.errs = append(im.errs, fmt.Errorf("%s: its target's name is longer than %d bytes", im.from, probe.MaxTargetName))
		return
	}
	if first, twice := im.sources[c.Target.Name]; twice {
		im.errs = append(im.errs, fmt.Errorf("%s: target %q is defined already by %s", im.from, c.Target.Name, first))
		return
	}
	im.sources[c.Target.Name] = im.from
	if c.In != nil {
		im.contained(m, c)
		return
	}
	place := im.placement(c)
	if c.Init && place.command == nil {
		im.warn(&im.doc.Body, "Init container %q is not run, since %s.", c.Name, place.reason)
		return
	}
	if len(c.Probes) == 0 && place.command == nil {
		im.warn(&im.doc.Body, "Container %q is left out: it has no probes, and %s.", c.Name, place.reason)
		return
	}
	if c.Sidecar && place.command != nil {
		im.sidecar(m, c)
	}
	target := im.doc.Block("target", c.Target.Name)
	im.address(target, &c.Container, place)
	im.unsupported(target, m.IgnoredOf[c.Name])
	if fields := m.ProcessFields(c.Name); place.command == nil && len(fields) > 0 {
		im.warn(target, "Ignored fields, which are for a process: %s.", strings.Join(fields, ", "))
	}
	if place.command != nil {
		if conflict := im.ports.add(c.Container); conflict != "" {
			im.warn(target, "%s.", conflict)
		}
		if c.LeftOut != "" {
			im.warn(target, "%s.", c.LeftOut)
		}
		writeProcess(target, c)
	}
	im.probes(target, c.Container, place.command != nil)
}

// sidecar warns if a sidecar behaves differently as a target than in a pod.
func (im *importer) sidecar(m kube.Manifest, c container) {
	if slices.ContainsFunc(c.Probes, func(p kube.Probe) bool { return p.Rule.Kind == probe.Readiness }) {
		im.warn(&im.doc.Body, "The other containers do not wait until this sidecar has started: start_after would wait until it is ready.")
	}
	if policy := m.Pod.Spec.RestartPolicy; policy == "Never" || policy == "OnFailure" {
		im.warn(&im.doc.Body, "This sidecar goes on when the other containers have exited.")
	}
}

// placement is where a container runs.
type placement struct {
	command []string // of the engine's process; nil if the container runs elsewhere
	reason  string   // why the engine does not run it; follows "and" in a sentence
	address string   // if it runs elsewhere
	guessed bool     // the address is a guess
}

func (im *importer) placement(c container) placement {
	switch address := cmp.Or(im.flags.address, c.Target.Address); {
	case im.flags.address != "" || address != loopback:
		return placement{reason: "it runs elsewhere", address: address}
	case c.Argv == nil:
		return placement{reason: "the engine cannot start it: " + c.Reason, address: loopback, guessed: true}
	}
	return placement{command: c.Argv}
}

// address writes the address and the ports of a container, and sets the address of its target.
func (im *importer) address(body *document.Body, c *kube.Container, place placement) {
	body.Comment("Image %s", c.Image)
	c.Target.Address = cmp.Or(place.address, c.Target.Address, loopback)
	if place.command == nil {
		im.warn(body, "It is only probed, since %s.", place.reason)
		if place.guessed {
			body.SetWithComment("address", place.address, "a guess: write where it runs")
		} else {
			body.Set("address", place.address)
		}
		c.Target.Env = nil // the variables are those of the container's process
	}
	writePorts(body, c.Target)
}

// writePorts writes the named ports of a target.
func writePorts(body *document.Body, t probe.Target) {
	if len(t.Ports) > 0 {
		ports := map[string]any{}
		for name, n := range t.Ports {
			ports[name] = int(n)
		}
		body.Set("ports", ports)
	}
}

// writeProcess writes the settings to run a container as a process.
func writeProcess(body *document.Body, c container) {
	writeUnit(body, c)
	body.Newline()
	body.BlockOf("process", []document.Argument{
		{Name: "command", Value: c.Argv},
		{Name: "env", Value: c.Target.Env},
		{Name: "dir", Value: c.Target.Dir},
		{Name: "user", Value: c.Target.User},
	}...)
	writePreStop(body, c.Unit.PreStop)
}

// writeUnit writes the settings for starting, stopping and restarting a container.
func writeUnit(body *document.Body, c container) {
	if c.Unit.Policy != restart.Always {
		body.Set("restart_policy", c.Unit.Policy.String())
		if len(c.Unit.RestartExitCodes) > 0 {
			body.Set("restart_exit_codes", c.Unit.RestartExitCodes)
		}
	}
	if c.Unit.Oneshot {
		body.Set("oneshot", true)
	}
	if c.Unit.StopSignal != 0 {
		body.Set("stop_signal", c.Unit.StopSignal.String())
	}
	if len(c.StartAfter) > 0 {
		body.Set("start_after", c.StartAfter)
	}
	if c.Unit.TerminationGracePeriod != restart.DefaultTerminationGracePeriod {
		body.Set("termination_grace_period", seconds(c.Unit.TerminationGracePeriod))
	}
}

func writePreStop(body *document.Body, p *restart.PreStop) {
	switch {
	case p == nil:
	case p.Sleep > 0:
		body.BlockOf("pre_stop", document.Argument{Name: "sleep", Value: seconds(p.Sleep)})
	case p.URL != "":
		body.BlockOf("pre_stop", document.Argument{Name: "url", Value: p.URL}, document.Argument{Name: "headers", Value: p.Headers})
	default:
		body.BlockOf("pre_stop", document.Argument{Name: "command", Value: p.Command})
	}
}

// seconds formats a duration in whole seconds.
func seconds(d time.Duration) string { return fmt.Sprintf("%ds", d/time.Second) }
