package kube

import (
	"cmp"
	"errors"
	"fmt"
	"net/http"
	"slices"
	"strconv"
	"time"

	v1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/util/validation/field"

	"github.com/sonde-probe/sonde/internal/command"
	"github.com/sonde-probe/sonde/kube/internal/validate"
	"github.com/sonde-probe/sonde/probe"
)

// Container is a container of a pod converted for an engine: a target, its probes, and the settings to run it as a process.
type Container struct {
	// Target has the name "namespace/pod/container" and the pod's IP as its address, if the pod has one. Env, Dir and User
	// are those of the container's process.
	Target probe.Target

	Name    string // "app"
	Image   string
	Sidecar bool    // a restartable init container
	Init    bool    // any other init container, which must complete before later containers start
	Probes  []Probe // at most one for each of startup, readiness and liveness

	// Command and Args are copied from the manifest, with $(NAME) references not replaced. Without a command, the image's
	// entrypoint runs.
	Command, Args []string

	// Obstacles are the reasons why the container cannot run as a process of this machine, such as volumes. It is empty if
	// the container can run.
	Obstacles []string

	// StartAfter are the names of the targets of earlier init containers and sidecars that must be up before this container
	// starts. A sidecar with a readiness probe is left out, since the kubelet does not wait until it is ready.
	StartAfter []string

	StopSignal             v1.Signal        // of the container's lifecycle; empty for the image's stop signal
	PreStop                *Action          // of the container's lifecycle; nil for none
	RestartPolicy          v1.RestartPolicy // of the container, else the pod's
	RestartExitCodes       []string         // exit codes after which a rule restarts it whatever RestartPolicy is: "42", or "64-78"
	RestartsPod            bool             // a rule restarts all containers
	TerminationGracePeriod time.Duration    // of the pod, at least minTerminationGracePeriod
}

// minTerminationGracePeriod is the shortest grace period of a container
// (minimumGracePeriodInSeconds in k8s.io/kubernetes/pkg/kubelet/kuberuntime; K138
// in docs/kubelet.md).
const minTerminationGracePeriod = 2 * time.Second

// Probe is a probe of a container, with its rule and action.
type Probe struct {
	Field string     // in the manifest: "livenessProbe"
	Rule  probe.Rule // with its kind and the API server's defaults
	Action
}

// Containers returns the containers of a pod that can have probes: regular containers, then sidecars, in the order of the
// manifest (K3 in docs/kubelet.md). Defaults are set; the pod itself is not changed. The error joins the errors of
// Validate, or the errors of all probes whose numbers exceed the engine's limits.
func Containers(pod *v1.Pod) ([]Container, error) {
	all, err := everyContainer(pod, field.NewPath("spec"))
	return slices.DeleteFunc(all, func(c Container) bool { return c.Init }), err
}

// everyContainer is like Containers but includes all init containers: regular containers first, then init containers and
// sidecars in the order of the manifest. Init containers other than sidecars have no probes.
func everyContainer(pod *v1.Pod, spec *field.Path) ([]Container, error) {
	pod = Default(pod)
	if found := validate.Pod(pod, spec); len(found) > 0 {
		errs := make([]error, len(found))
		for i, err := range found {
			errs[i] = err
		}
		return nil, errors.Join(errs...)
	}
	var all []Container
	var errs []error
	for i, c := range pod.Spec.Containers {
		converted, err := convert(pod, c, spec.Child("containers").Index(i))
		converted.StartAfter = startAfter(pod, pod.Spec.InitContainers)
		all, errs = append(all, converted), append(errs, err)
	}
	for i, c := range pod.Spec.InitContainers {
		converted, err := convert(pod, c, spec.Child("initContainers").Index(i))
		converted.StartAfter = startAfter(pod, pod.Spec.InitContainers[:i])
		converted.Sidecar = validate.IsSidecar(c)
		converted.Init = !converted.Sidecar
		if converted.Init && converted.RestartPolicy == v1.RestartPolicyAlways {
			converted.RestartPolicy = v1.RestartPolicyOnFailure // a completed init container is not started again
		}
		all, errs = append(all, converted), append(errs, err)
	}
	return all, errors.Join(errs...)
}

// startAfter returns Container.StartAfter for a container that follows the given init containers.
func startAfter(pod *v1.Pod, earlier []v1.Container) (targets []string) {
	for _, c := range earlier {
		if !validate.IsSidecar(c) || c.ReadinessProbe == nil {
			targets = append(targets, TargetName(pod, c.Name))
		}
	}
	return targets
}

// Validate returns the errors of the API server's validation, with the same texts and paths. It covers the parts of a pod
// that probes need: names, images, ports, names of variables, restart policies, grace periods and the probes themselves
// (K171 to K174 in docs/kubelet.md). Defaults are set first; the pod itself is not changed.
func Validate(pod *v1.Pod) field.ErrorList {
	return validate.Pod(Default(pod), field.NewPath("spec"))
}

// convert converts a container of a valid pod.
func convert(pod *v1.Pod, c v1.Container, path *field.Path) (Container, error) {
	env, unknown := environment(pod, c.Env)
	grace := duration(*pod.Spec.TerminationGracePeriodSeconds)
	converted := Container{
		Target: probe.Target{
			Name: TargetName(pod, c.Name), Address: pod.Status.PodIP, Ports: portsOf(c),
			Env: env, Dir: c.WorkingDir, User: userOf(pod, c),
		},
		Name: c.Name, Image: c.Image, Command: c.Command, Args: c.Args,
		Obstacles:        obstacles(pod, c, unknown),
		StopSignal:       stopSignal(c),
		PreStop:          preStopOf(c),
		RestartPolicy:    policyOf(pod, c),
		RestartExitCodes: restartExitCodes(c),
		RestartsPod: slices.ContainsFunc(c.RestartPolicyRules, func(r v1.ContainerRestartRule) bool {
			return r.Action == v1.ContainerRestartRuleActionRestartAllContainers
		}),
		TerminationGracePeriod: max(grace, minTerminationGracePeriod),
	}
	var errs []error
	if grace > probe.MaxDuration {
		errs = append(errs, fmt.Errorf("terminationGracePeriodSeconds is %d: the maximum is %v", *pod.Spec.TerminationGracePeriodSeconds, probe.MaxDuration))
	}
	probes := validate.Probes(c)
	slices.SortFunc(probes, func(a, b validate.Probe) int { return cmp.Compare(a.Kind, b.Kind) })
	for _, p := range probes {
		rule := ruleOf(p)
		if err := rule.Check(); err != nil {
			errs = append(errs, fmt.Errorf("%s: %w", path.Child(p.Field), err))
		}
		converted.Probes = append(converted.Probes, Probe{Field: p.Field, Rule: rule, Action: actionOf(p.Spec.ProbeHandler, c)})
	}
	return converted, errors.Join(errs...)
}

func stopSignal(c v1.Container) v1.Signal {
	if c.Lifecycle == nil || c.Lifecycle.StopSignal == nil {
		return ""
	}
	return *c.Lifecycle.StopSignal
}

// preStopOf returns the preStop action of a container, or nil for none. References such as $(NAME) in an exec command are
// not replaced. As in the kubelet, a tcpSocket hook does nothing.
func preStopOf(c v1.Container) *Action {
	if c.Lifecycle == nil || c.Lifecycle.PreStop == nil {
		return nil
	}
	switch h := c.Lifecycle.PreStop; {
	case h.Exec != nil:
		return &Action{Handler: "exec", Command: h.Exec.Command}
	case h.HTTPGet != nil:
		return new(httpOf(h.HTTPGet))
	case h.Sleep != nil:
		return &Action{Handler: "sleep", Sleep: duration(h.Sleep.Seconds)}
	}
	return nil
}

// portsOf returns the named ports. If a name is used twice, the first port counts. The protocol is ignored (K110).
func portsOf(c v1.Container) map[string]uint16 {
	var ports map[string]uint16
	for _, p := range c.Ports {
		if _, twice := ports[p.Name]; p.Name == "" || twice {
			continue
		}
		if ports == nil {
			ports = map[string]uint16{}
		}
		ports[p.Name] = uint16(p.ContainerPort)
	}
	return ports
}

func policyOf(pod *v1.Pod, c v1.Container) v1.RestartPolicy {
	if c.RestartPolicy != nil {
		return v1.RestartPolicy(*c.RestartPolicy)
	}
	return pod.Spec.RestartPolicy
}

// userOf returns "user" or "user:group", or "" for the user of the image. A group without a user is ignored: see
// findIgnored.
func userOf(pod *v1.Pod, c v1.Container) string {
	switch user, group := userAndGroup(pod, c); {
	case user == nil:
		return ""
	case group == nil:
		return strconv.FormatInt(*user, 10)
	default:
		return fmt.Sprintf("%d:%d", *user, *group)
	}
}

// userAndGroup returns the user and the group of the container, or else those of the pod. Either may be nil.
func userAndGroup(pod *v1.Pod, c v1.Container) (user, group *int64) {
	if s := pod.Spec.SecurityContext; s != nil {
		user, group = s.RunAsUser, s.RunAsGroup
	}
	if s := c.SecurityContext; s != nil {
		user, group = cmp.Or(s.RunAsUser, user), cmp.Or(s.RunAsGroup, group)
	}
	return user, group
}

func ruleOf(p validate.Probe) probe.Rule {
	r := probe.Rule{
		Kind:             p.Kind,
		InitialDelay:     duration(int64(p.Spec.InitialDelaySeconds)),
		Period:           duration(int64(p.Spec.PeriodSeconds)),
		Timeout:          duration(int64(p.Spec.TimeoutSeconds)),
		SuccessThreshold: p.Spec.SuccessThreshold,
		FailureThreshold: p.Spec.FailureThreshold,
	}
	if grace := p.Spec.TerminationGracePeriodSeconds; grace != nil {
		r.TerminationGracePeriod = max(duration(*grace), minTerminationGracePeriod)
	}
	return r
}

// duration converts seconds to a duration. It does not overflow: a number above probe.MaxDuration stays above it.
func duration(seconds int64) time.Duration {
	return time.Duration(min(seconds, int64(probe.MaxDuration/time.Second)+1)) * time.Second
}

// actionOf returns the action of a valid probe.
func actionOf(h v1.ProbeHandler, c v1.Container) Action {
	switch {
	case h.Exec != nil:
		env := make(map[string]string, len(c.Env)) // the literal values; empty for valueFrom (K76)
		for _, e := range c.Env {
			env[e.Name] = e.Value
		}
		words := make([]string, len(h.Exec.Command))
		for i, word := range h.Exec.Command {
			words[i] = command.Expand(word, env)
		}
		return Action{Handler: "exec", Command: words}
	case h.HTTPGet != nil:
		return httpOf(h.HTTPGet)
	case h.TCPSocket != nil:
		return Action{Handler: "tcp", Port: h.TCPSocket.Port.String(), Host: h.TCPSocket.Host}
	}
	return Action{Handler: "grpc", Port: strconv.Itoa(int(h.GRPC.Port)), Service: *h.GRPC.Service}
}

// httpOf converts an httpGet action. Header names become canonical, repeated headers keep all values in order, and of
// several Host headers only the first one counts (K87).
func httpOf(get *v1.HTTPGetAction) Action {
	a := Action{Handler: "http", Path: get.Path, Port: get.Port.String(), Host: get.Host, Scheme: string(get.Scheme)}
	for _, header := range get.HTTPHeaders {
		name := http.CanonicalHeaderKey(header.Name)
		if name == "Host" && len(a.Headers[name]) > 0 {
			continue
		}
		if a.Headers == nil {
			a.Headers = map[string][]string{}
		}
		a.Headers[name] = append(a.Headers[name], header.Value)
	}
	return a
}
