package kube

import (
	"slices"

	v1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/util/intstr"
	"k8s.io/apimachinery/pkg/util/validation"
	"k8s.io/apimachinery/pkg/util/validation/field"
)

// Validate returns the errors of the API server's validation, with its texts and
// paths, for the parts of a pod that probes need: names, ports, names of variables,
// restart policies, grace periods and the probes themselves (K171 to K174). Defaults
// are set first; the pod itself is not changed.
func Validate(pod *v1.Pod) field.ErrorList {
	return validatePod(Default(pod), field.NewPath("spec"))
}

// validatePod checks a pod with defaults. Spec is the path of its spec.
func validatePod(pod *v1.Pod, spec *field.Path) field.ErrorList {
	found := validateMeta(pod)
	found = append(found, validateContainers(pod.Spec.Containers, spec.Child("containers"))...)
	found = append(found, validateInitContainers(&pod.Spec, spec.Child("initContainers"))...)
	for i, c := range pod.Spec.EphemeralContainers {
		found = append(found, forbidProbes(v1.Container(c.EphemeralContainerCommon), spec.Child("ephemeralContainers").Index(i),
			"cannot be set for an Ephemeral Container")...)
	}
	policies := []v1.RestartPolicy{v1.RestartPolicyAlways, v1.RestartPolicyOnFailure, v1.RestartPolicyNever}
	if !slices.Contains(policies, pod.Spec.RestartPolicy) {
		found = append(found, field.NotSupported(spec.Child("restartPolicy"), pod.Spec.RestartPolicy, policies))
	}
	return found
}

func validateMeta(pod *v1.Pod) field.ErrorList {
	var found field.ErrorList
	meta := field.NewPath("metadata")
	if pod.Name == "" && pod.GenerateName == "" {
		found = append(found, field.Required(meta.Child("name"), "name or generateName is required"))
	}
	if pod.Name != "" {
		found = append(found, invalid(meta.Child("name"), pod.Name, validation.IsDNS1123Subdomain(pod.Name))...)
	}
	return append(found, invalid(meta.Child("namespace"), pod.Namespace, validation.IsDNS1123Label(pod.Namespace))...)
}

func validateContainers(containers []v1.Container, path *field.Path) field.ErrorList {
	var found field.ErrorList
	if len(containers) == 0 {
		return append(found, field.Required(path, ""))
	}
	names := map[string]bool{}
	for i, c := range containers {
		at := path.Index(i)
		found = append(found, validateContainer(c, at)...)
		found = append(found, validateRestarts(c, at)...)
		if names[c.Name] {
			found = append(found, field.Duplicate(at.Child("name"), c.Name))
		}
		names[c.Name] = true
		found = append(found, validateProbes(c, at)...)
	}
	return found
}

func validateInitContainers(spec *v1.PodSpec, path *field.Path) field.ErrorList {
	var found field.ErrorList
	names := map[string]bool{}
	for _, c := range spec.Containers {
		names[c.Name] = true
	}
	for i, c := range spec.InitContainers {
		at := path.Index(i)
		found = append(found, validateContainer(c, at)...)
		found = append(found, validateInitRestarts(c, at)...)
		if names[c.Name] {
			found = append(found, field.Duplicate(at.Child("name"), c.Name))
		}
		names[c.Name] = names[c.Name] || c.Name != ""
		if isSidecar(c) {
			found = append(found, validateProbes(c, at)...)
			continue
		}
		found = append(found, forbidProbes(c, at, "may not be set for init containers without restartPolicy=Always")...)
	}
	return found
}

// isSidecar reports whether an init container is restartable: a sidecar.
func isSidecar(c v1.Container) bool {
	return c.RestartPolicy != nil && *c.RestartPolicy == v1.ContainerRestartPolicyAlways
}

// validateContainer checks the fields that regular and init containers share.
func validateContainer(c v1.Container, path *field.Path) field.ErrorList {
	var found field.ErrorList
	if c.Name == "" {
		found = append(found, field.Required(path.Child("name"), ""))
	} else {
		found = append(found, invalid(path.Child("name"), c.Name, validation.IsDNS1123Label(c.Name))...)
	}
	found = append(found, validatePorts(c.Ports, path.Child("ports"))...)
	for i, e := range c.Env {
		at := path.Child("env").Index(i).Child("name")
		if e.Name == "" {
			found = append(found, field.Required(at, ""))
			continue
		}
		found = append(found, invalid(at, e.Name, validation.IsRelaxedEnvVarName(e.Name))...)
	}
	return found
}

func validatePorts(ports []v1.ContainerPort, path *field.Path) field.ErrorList {
	var found field.ErrorList
	names := map[string]bool{}
	for i, p := range ports {
		at := path.Index(i)
		if p.Name != "" {
			wrong := invalid(at.Child("name"), p.Name, validation.IsValidPortName(p.Name))
			if len(wrong) == 0 && names[p.Name] {
				wrong = append(wrong, field.Duplicate(at.Child("name"), p.Name))
			}
			names[p.Name] = true
			found = append(found, wrong...)
		}
		if p.ContainerPort == 0 {
			found = append(found, field.Required(at.Child("containerPort"), ""))
		} else {
			found = append(found, invalid(at.Child("containerPort"), p.ContainerPort, validation.IsValidPortNum(int(p.ContainerPort)))...)
		}
		protocols := []v1.Protocol{v1.ProtocolSCTP, v1.ProtocolTCP, v1.ProtocolUDP}
		if !slices.Contains(protocols, p.Protocol) {
			found = append(found, field.NotSupported(at.Child("protocol"), p.Protocol, protocols))
		}
	}
	return found
}

// forbidProbes returns an error for each probe of a container.
func forbidProbes(c v1.Container, path *field.Path, why string) field.ErrorList {
	var found field.ErrorList
	for _, p := range probesOf(c) {
		found = append(found, field.Forbidden(path.Child(p.field), why))
	}
	return found
}

// validatePort checks a port that is a number or a name (K173).
func validatePort(port intstr.IntOrString, path *field.Path) field.ErrorList {
	if port.Type == intstr.String {
		return invalid(path, port.StrVal, validation.IsValidPortName(port.StrVal))
	}
	return invalid(path, port.IntValue(), validation.IsValidPortNum(port.IntValue()))
}

// invalid returns an error for each problem of a value.
func invalid(path *field.Path, value any, problems []string) field.ErrorList {
	var found field.ErrorList
	for _, problem := range problems {
		found = append(found, field.Invalid(path, value, problem))
	}
	return found
}

func notNegative(n int64, path *field.Path) field.ErrorList {
	if n >= 0 {
		return nil
	}
	return field.ErrorList{field.Invalid(path, n, "must be greater than or equal to 0").WithOrigin("minimum")}
}
