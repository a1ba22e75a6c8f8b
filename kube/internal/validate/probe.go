package validate

import (
	"slices"

	v1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/util/intstr"
	"k8s.io/apimachinery/pkg/util/validation"
	"k8s.io/apimachinery/pkg/util/validation/field"

	"github.com/sonde-probe/sonde/probe"
)

// Probe is a probe of a container.
type Probe struct {
	Kind  probe.Kind
	Field string    // "livenessProbe"
	Spec  *v1.Probe // never nil
}

// Probes returns the probes of a container in the API server's order.
func Probes(c v1.Container) []Probe {
	all := []Probe{
		{probe.Liveness, "livenessProbe", c.LivenessProbe},
		{probe.Readiness, "readinessProbe", c.ReadinessProbe},
		{probe.Startup, "startupProbe", c.StartupProbe},
	}
	return slices.DeleteFunc(all, func(p Probe) bool { return p.Spec == nil })
}

// probes validates the probes of a container.
func (v *checker) probes(c v1.Container, path *field.Path) {
	for _, p := range Probes(c) {
		at := path.Child(p.Field)
		v.action(p.Spec.ProbeHandler, at)
		v.numbers(p.Spec, at)
		v.kind(p, at)
	}
}

// numbers validates the numbers of a probe of any kind (K171).
func (v *checker) numbers(p *v1.Probe, path *field.Path) {
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
		if number.value < 0 {
			v.add(field.Invalid(path.Child(number.field), int64(number.value), "must be greater than or equal to 0").WithOrigin("minimum"))
		}
	}
	if grace := p.TerminationGracePeriodSeconds; grace != nil && *grace <= 0 {
		v.add(field.Invalid(path.Child("terminationGracePeriodSeconds"), *grace, "must be greater than 0"))
	}
}

// kind validates the constraints of the probe's kind (K171).
func (v *checker) kind(p Probe, path *field.Path) {
	grace := p.Spec.TerminationGracePeriodSeconds
	switch {
	case p.Kind == probe.Readiness && grace != nil:
		v.add(field.Invalid(path.Child("terminationGracePeriodSeconds"), grace, "must not be set for readinessProbes"))
	case p.Kind != probe.Readiness && p.Spec.SuccessThreshold != 1:
		v.add(field.Invalid(path.Child("successThreshold"), p.Spec.SuccessThreshold, "must be 1"))
	}
}

// action validates that there is exactly one action, and validates that action (K172).
func (v *checker) action(h v1.ProbeHandler, path *field.Path) {
	count := 0
	for _, action := range []struct {
		field string
		given bool
		check func(v1.ProbeHandler, *field.Path)
	}{
		{"exec", h.Exec != nil, v.exec},
		{"httpGet", h.HTTPGet != nil, v.http},
		{"tcpSocket", h.TCPSocket != nil, v.tcp},
		{"grpc", h.GRPC != nil, v.grpc},
	} {
		if !action.given {
			continue
		}
		if count++; count > 1 {
			v.add(field.Forbidden(path.Child(action.field), "may not specify more than 1 handler type"))
			continue
		}
		action.check(h, path.Child(action.field))
	}
	if count == 0 {
		v.add(field.Required(path, "must specify a handler type"))
	}
}

func (v *checker) exec(h v1.ProbeHandler, path *field.Path) {
	if len(h.Exec.Command) == 0 {
		v.add(field.Required(path.Child("command"), ""))
	}
}

func (v *checker) http(h v1.ProbeHandler, path *field.Path) {
	v.port(h.HTTPGet.Port, path.Child("port"))
	oneOf(v, h.HTTPGet.Scheme, []v1.URIScheme{v1.URISchemeHTTP, v1.URISchemeHTTPS}, path.Child("scheme"))
	for _, header := range h.HTTPGet.HTTPHeaders {
		v.invalid(path.Child("httpHeaders"), header.Name, validation.IsHTTPHeaderName(header.Name))
	}
}

func (v *checker) tcp(h v1.ProbeHandler, path *field.Path) {
	v.port(h.TCPSocket.Port, path.Child("port"))
}

func (v *checker) grpc(h v1.ProbeHandler, path *field.Path) {
	v.port(intstr.FromInt32(h.GRPC.Port), path.Child("port"))
}
