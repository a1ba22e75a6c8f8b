// Package validate validates the parts of a pod that probes need, with the error texts of the API server: names, images,
// ports, names of variables, restart policies, grace periods and the probes themselves (K171 to K174 in docs/kubelet.md).
//
//	pod.go      the pod and its containers
//	probe.go    probes
//	restarts.go restart policies and rules
package validate

import (
	"slices"

	v1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/util/intstr"
	"k8s.io/apimachinery/pkg/util/validation"
	"k8s.io/apimachinery/pkg/util/validation/field"
)

// Pod validates a pod that has the API server's defaults. spec is the path of its spec, for error messages. It is safe for
// concurrent use by multiple goroutines.
func Pod(pod *v1.Pod, spec *field.Path) field.ErrorList {
	var v checker
	v.meta(pod)
	v.containers(&pod.Spec, spec)
	for i, c := range pod.Spec.EphemeralContainers {
		v.forbidProbes(v1.Container(c.EphemeralContainerCommon), spec.Child("ephemeralContainers").Index(i),
			"cannot be set for an Ephemeral Container")
	}
	policies := []v1.RestartPolicy{v1.RestartPolicyAlways, v1.RestartPolicyOnFailure, v1.RestartPolicyNever}
	oneOf(&v, pod.Spec.RestartPolicy, policies, spec.Child("restartPolicy"))
	return field.ErrorList(v)
}

// checker collects errors in the API server's order.
type checker field.ErrorList

func (v *checker) add(e *field.Error) { *v = append(*v, e) }

// invalid adds an error for each problem of a value.
func (v *checker) invalid(path *field.Path, value any, problems []string) {
	for _, problem := range problems {
		v.add(field.Invalid(path, value, problem))
	}
}

// oneOf adds an error for a value that is not in valid.
func oneOf[T ~string](v *checker, value T, valid []T, path *field.Path) {
	if !slices.Contains(valid, value) {
		v.add(field.NotSupported(path, value, valid))
	}
}

func (v *checker) meta(pod *v1.Pod) {
	meta := field.NewPath("metadata")
	if pod.Name == "" && pod.GenerateName == "" {
		v.add(field.Required(meta.Child("name"), "name or generateName is required"))
	}
	if pod.Name != "" {
		v.invalid(meta.Child("name"), pod.Name, validation.IsDNS1123Subdomain(pod.Name))
	}
	v.invalid(meta.Child("namespace"), pod.Namespace, validation.IsDNS1123Label(pod.Namespace))
}

func (v *checker) containers(spec *v1.PodSpec, path *field.Path) {
	regular := path.Child("containers")
	if len(spec.Containers) == 0 {
		v.add(field.Required(regular, ""))
	}
	names := map[string]bool{}
	for i, c := range spec.Containers {
		v.container(c, regular.Index(i), names, false)
		names[c.Name] = true
		v.probes(c, regular.Index(i))
	}
	for i, c := range spec.InitContainers {
		at := path.Child("initContainers").Index(i)
		v.container(c, at, names, true)
		names[c.Name] = names[c.Name] || c.Name != ""
		if IsSidecar(c) {
			v.probes(c, at)
		} else {
			v.forbidProbes(c, at, "may not be set for init containers without restartPolicy=Always")
		}
	}
}

// IsSidecar reports whether an init container is restartable: a sidecar.
func IsSidecar(c v1.Container) bool {
	return c.RestartPolicy != nil && *c.RestartPolicy == v1.ContainerRestartPolicyAlways
}

// container validates the fields that regular and init containers share. names are the names of earlier containers.
func (v *checker) container(c v1.Container, path *field.Path, names map[string]bool, init bool) {
	v.name(c.Name, path.Child("name"), validation.IsDNS1123Label)
	if c.Image == "" {
		v.add(field.Required(path.Child("image"), ""))
	}
	v.ports(c.Ports, path.Child("ports"))
	for i, e := range c.Env {
		v.name(e.Name, path.Child("env").Index(i).Child("name"), validation.IsRelaxedEnvVarName)
	}
	v.restarts(c, path, init)
	if names[c.Name] {
		v.add(field.Duplicate(path.Child("name"), c.Name))
	}
}

// name validates a required name.
func (v *checker) name(name string, path *field.Path, problems func(string) []string) {
	if name == "" {
		v.add(field.Required(path, ""))
		return
	}
	v.invalid(path, name, problems(name))
}

func (v *checker) ports(ports []v1.ContainerPort, path *field.Path) {
	names := map[string]bool{}
	for i, p := range ports {
		at := path.Index(i)
		if p.Name != "" {
			problems := validation.IsValidPortName(p.Name)
			v.invalid(at.Child("name"), p.Name, problems)
			if len(problems) == 0 && names[p.Name] {
				v.add(field.Duplicate(at.Child("name"), p.Name))
			}
			names[p.Name] = true
		}
		if p.ContainerPort == 0 {
			v.add(field.Required(at.Child("containerPort"), ""))
		} else {
			v.invalid(at.Child("containerPort"), p.ContainerPort, validation.IsValidPortNum(int(p.ContainerPort)))
		}
		oneOf(v, p.Protocol, []v1.Protocol{v1.ProtocolSCTP, v1.ProtocolTCP, v1.ProtocolUDP}, at.Child("protocol"))
	}
}

// forbidProbes adds an error for each probe of a container.
func (v *checker) forbidProbes(c v1.Container, path *field.Path, why string) {
	for _, p := range Probes(c) {
		v.add(field.Forbidden(path.Child(p.Field), why))
	}
}

// port validates a port that is a number or a name (K173).
func (v *checker) port(port intstr.IntOrString, path *field.Path) {
	if port.Type == intstr.String {
		v.invalid(path, port.StrVal, validation.IsValidPortName(port.StrVal))
	} else {
		v.invalid(path, port.IntValue(), validation.IsValidPortNum(port.IntValue()))
	}
}
