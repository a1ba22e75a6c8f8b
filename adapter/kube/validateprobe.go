package kube

import (
	"slices"

	v1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/util/intstr"
	"k8s.io/apimachinery/pkg/util/validation"
	"k8s.io/apimachinery/pkg/util/validation/field"

	"github.com/sonde-probe/sonde/probe"
)

// kindProbe is a probe of a container with its kind.
type kindProbe struct {
	kind  probe.Kind
	field string
	spec  *v1.Probe
}

// probesOf returns the probes of a container in the API server's order.
func probesOf(c v1.Container) []kindProbe {
	all := []kindProbe{
		{probe.Liveness, "livenessProbe", c.LivenessProbe},
		{probe.Readiness, "readinessProbe", c.ReadinessProbe},
		{probe.Startup, "startupProbe", c.StartupProbe},
	}
	return slices.DeleteFunc(all, func(p kindProbe) bool { return p.spec == nil })
}

// validateProbes checks the probes of a container.
func validateProbes(c v1.Container, path *field.Path) field.ErrorList {
	var found field.ErrorList
	for _, p := range probesOf(c) {
		at := path.Child(p.field)
		found = append(found, validateAction(p.spec.ProbeHandler, at)...)
		found = append(found, validateNumbers(p.spec, at)...)
		found = append(found, validateKind(p, at)...)
	}
	return found
}

// validateNumbers checks the numbers of a probe of any kind (K171).
func validateNumbers(p *v1.Probe, path *field.Path) field.ErrorList {
	var found field.ErrorList
	for _, number := range []struct {
		field string
		value int32
	}{
		{"initialDelaySeconds", p.InitialDelaySeconds},
		{"timeoutSeconds", p.TimeoutSeconds},
		{"periodSeconds", p.PeriodSeconds},
		{"successThreshold", p.SuccessThreshold},
		{"failureThreshold", p.FailureThreshold},
	} {
		found = append(found, notNegative(int64(number.value), path.Child(number.field))...)
	}
	if grace := p.TerminationGracePeriodSeconds; grace != nil && *grace <= 0 {
		found = append(found, field.Invalid(path.Child("terminationGracePeriodSeconds"), *grace, "must be greater than 0"))
	}
	return found
}

// validateKind checks the rules of the probe's kind (K171).
func validateKind(p kindProbe, path *field.Path) field.ErrorList {
	grace := p.spec.TerminationGracePeriodSeconds
	switch {
	case p.kind == probe.Readiness && grace != nil:
		return field.ErrorList{field.Invalid(path.Child("terminationGracePeriodSeconds"), grace, "must not be set for readinessProbes")}
	case p.kind != probe.Readiness && p.spec.SuccessThreshold != 1:
		return field.ErrorList{field.Invalid(path.Child("successThreshold"), p.spec.SuccessThreshold, "must be 1")}
	}
	return nil
}

// validateAction checks that there is exactly one action, and the action (K172).
func validateAction(h v1.ProbeHandler, path *field.Path) field.ErrorList {
	var found field.ErrorList
	count := 0
	for _, action := range []struct {
		field string
		given bool
		check func(v1.ProbeHandler, *field.Path) field.ErrorList
	}{
		{"exec", h.Exec != nil, validateExec},
		{"httpGet", h.HTTPGet != nil, validateHTTP},
		{"tcpSocket", h.TCPSocket != nil, validateTCP},
		{"grpc", h.GRPC != nil, validateGRPC},
	} {
		if !action.given {
			continue
		}
		if count++; count > 1 {
			found = append(found, field.Forbidden(path.Child(action.field), "may not specify more than 1 handler type"))
			continue
		}
		found = append(found, action.check(h, path.Child(action.field))...)
	}
	if count == 0 {
		found = append(found, field.Required(path, "must specify a handler type"))
	}
	return found
}

func validateExec(h v1.ProbeHandler, path *field.Path) field.ErrorList {
	if len(h.Exec.Command) == 0 {
		return field.ErrorList{field.Required(path.Child("command"), "")}
	}
	return nil
}

func validateHTTP(h v1.ProbeHandler, path *field.Path) field.ErrorList {
	get := h.HTTPGet
	found := validatePort(get.Port, path.Child("port"))
	if schemes := []v1.URIScheme{v1.URISchemeHTTP, v1.URISchemeHTTPS}; !slices.Contains(schemes, get.Scheme) {
		found = append(found, field.NotSupported(path.Child("scheme"), get.Scheme, schemes))
	}
	for _, header := range get.HTTPHeaders {
		found = append(found, invalid(path.Child("httpHeaders"), header.Name, validation.IsHTTPHeaderName(header.Name))...)
	}
	return found
}

func validateTCP(h v1.ProbeHandler, path *field.Path) field.ErrorList {
	return validatePort(h.TCPSocket.Port, path.Child("port"))
}

func validateGRPC(h v1.ProbeHandler, path *field.Path) field.ErrorList {
	return validatePort(intstr.FromInt32(h.GRPC.Port), path.Child("port"))
}
