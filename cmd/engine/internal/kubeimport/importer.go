package kubeimport

import (
	"cmp"
	"fmt"
	"path/filepath"
	"slices"
	"strconv"
	"strings"

	"github.com/sonde-probe/sonde/adapter/kube"
	"github.com/sonde-probe/sonde/cmd/engine/internal/manifests"
	"github.com/sonde-probe/sonde/config"
	"github.com/sonde-probe/sonde/probe"
)

// importer writes manifests as a configuration. It stands in this package since
// no other may know both Kubernetes and HCL.
type importer struct {
	flags    *importFlags
	handlers kube.Handlers
	out      hclText
	places   map[string]string // where each target comes from
	ports    manifests.Ports
	warnings []string
	errs     []error

	grpc bool   // a grpc probe was written, which needs the plugin
	from string // what is being written, for warnings: "web.yaml:1: Deployment shop/web"
}

func newImporter(f *importFlags) *importer {
	im := &importer{flags: f, handlers: manifests.Handlers(nil), places: map[string]string{}, ports: manifests.Ports{}}
	if f.grpc.File != "" {
		im.handlers.GRPC = func(kube.GRPC) (probe.Handler, error) {
			im.grpc = true
			return probe.HandlerFunc(nil), nil // the plugin looks at it when all is written
		}
	}
	return im
}

// plugin returns the block of the plugin that grpc probes need, if there are any.
func (im *importer) plugin() (string, error) {
	if !im.grpc {
		return "", nil
	}
	file, err := filepath.Abs(im.flags.grpc.File) // nobody knows yet where the configuration will lie
	if err != nil {
		return "", err
	}
	block := im.flags.grpc.Block()
	var out hclText
	out.open("plugin", block.Name)
	out.set("source", quote(file))
	out.set("sha256", quote(block.SHA256))
	out.block("grant", []argument{{"dial", list(block.Grant.Dial)}})
	out.close()
	out.line("")
	return out.String(), nil
}

// tell writes a comment, and warns of the same.
func (im *importer) tell(format string, a ...any) {
	im.out.comment(format, a...)
	im.warnings = append(im.warnings, printable(im.from+": "+fmt.Sprintf(format, a...)))
}

// manifest writes the targets of one manifest.
func (im *importer) manifest(m kube.Manifest) {
	im.from = m.Place + ": " + m.String()
	if im.out.Len() > 0 {
		im.out.line("")
	}
	im.out.comment("%s, from %s", m, m.Place)
	if m.Pod == nil {
		im.tell("It is not carried over: it is none of the kinds whose pods are read.")
		return
	}
	containers, err := m.Containers()
	if err != nil {
		for _, err := range manifests.Unjoin(err) {
			im.errs = append(im.errs, fmt.Errorf("%s: %w", im.from, err))
		}
		return
	}
	if len(m.Left) > 0 {
		im.tell("Not carried over: %s.", manifests.ListFields(m.Left))
	}
	im.initContainers(m, containers)
	for _, c := range containers {
		im.from = m.Place + ": " + m.String() + ": container " + c.Name
		im.container(c, m.LeftOf[c.Name])
	}
}

func (im *importer) initContainers(m kube.Manifest, containers []kube.Container) {
	for _, init := range m.Pod.Spec.InitContainers {
		if !slices.ContainsFunc(containers, func(c kube.Container) bool { return c.Name == init.Name }) {
			im.tell("Init container %q is not run.", init.Name)
		}
	}
}

// container writes the target of a container.
func (im *importer) container(c kube.Container, left []string) {
	im.out.line("")
	if len(c.Target.Name) > probe.MaxTargetName {
		im.errs = append(im.errs, fmt.Errorf("%s: its target's name is longer than %d bytes", im.from, probe.MaxTargetName))
		return
	}
	if first, twice := im.places[c.Target.Name]; twice {
		im.errs = append(im.errs, fmt.Errorf("%s: target %q is there already, from %s", im.from, c.Target.Name, first))
		return
	}
	im.places[c.Target.Name] = im.from
	life := im.life(c)
	if len(c.Probes) == 0 && life.words == nil {
		im.tell("Container %q makes no target: it has no probes, and %s.", c.Name, life.why)
		return
	}
	if c.Sidecar {
		im.tell("A sidecar: in a pod it begins before the others, here it does not.")
	}
	im.out.open("target", c.Target.Name)
	im.site(&c, life)
	if len(left) > 0 {
		im.tell("Not carried over: %s.", manifests.ListFields(left))
	}
	if life.words != nil {
		if problem := im.ports.Add(c); problem != "" {
			im.tell("%s.", problem)
		}
		im.process(c, life.words)
	}
	for _, p := range c.Probes {
		im.out.line("")
		im.probe(c, p, life)
	}
	im.out.close()
}

// life says who runs a container.
type life struct {
	words   []string // as a process of the engine; nil when it is not
	why     string   // the engine does not run it; follows "and" in a sentence
	address string   // where it is reached; empty for a process
	guessed bool     // nobody knows the address
}

func (im *importer) life(c kube.Container) life {
	if address := cmp.Or(im.flags.address, c.Target.Address); address != "" {
		return life{why: "it runs elsewhere", address: address}
	}
	words, err := im.flags.entrypoints.Command(c)
	problems := c.Obstacles
	if err != nil {
		problems = append([]string{err.Error()}, problems...)
	}
	if len(problems) > 0 {
		return life{why: "the engine cannot start it: " + strings.Join(problems, "; "), address: manifests.Loopback, guessed: true}
	}
	return life{words: words}
}

// site writes where a container is reached. It puts the address into its target.
func (im *importer) site(c *kube.Container, l life) {
	im.out.comment("Image %s", c.Image)
	c.Target.Address = cmp.Or(l.address, c.Target.Address, manifests.Loopback)
	if l.words == nil {
		c.Target.Env = nil // they are the process's
	}
	switch {
	case l.guessed:
		im.tell("It is only probed, since %s.", l.why)
	case l.words == nil:
		im.tell("It is only probed, since %s: command, variables, user and policies are not carried over.", l.why)
	}
	switch {
	case l.guessed:
		im.out.set("address", quote(l.address)+" # a guess: write where it runs")
	case l.words == nil:
		im.out.set("address", quote(l.address))
	}
	if len(c.Target.Ports) > 0 {
		ports := map[string]string{}
		for name, n := range c.Target.Ports {
			ports[name] = strconv.Itoa(int(n))
		}
		im.out.set("ports", object(ports))
	}
}

// process writes how the engine runs a container.
func (im *importer) process(c kube.Container, words []string) {
	if policy := manifests.RestartPolicy(c); policy != config.RestartAlways {
		im.out.set("restart_policy", quote(string(policy)))
	}
	if c.TerminationGracePeriod != config.DefaultTerminationGracePeriod {
		im.out.set("termination_grace_period", seconds(c.TerminationGracePeriod))
	}
	arguments := []argument{{"command", list(words)}}
	if len(c.Target.Env) > 0 {
		arguments = append(arguments, argument{"env", object(quoted(c.Target.Env))})
	}
	if c.Target.Dir != "" {
		arguments = append(arguments, argument{"dir", quote(c.Target.Dir)})
	}
	if c.Target.User != "" {
		arguments = append(arguments, argument{"user", quote(c.Target.User)})
	}
	im.out.line("")
	im.out.block("process", arguments)
}

func quoted(values map[string]string) map[string]string {
	out := make(map[string]string, len(values))
	for name, value := range values {
		out[name] = quote(value)
	}
	return out
}
