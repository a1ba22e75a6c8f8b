package validate

import (
	v1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/util/validation/field"
)

// Limits of the API server (validateContainerRestartPolicy in
// k8s.io/kubernetes/pkg/apis/core/validation).
const (
	maxRestartRules = 20
	maxExitCodes    = 255 // per rule
)

// Valid values of restart policies and rules, sorted.
var (
	restartPolicies  = []v1.ContainerRestartPolicy{v1.ContainerRestartPolicyAlways, v1.ContainerRestartPolicyNever, v1.ContainerRestartPolicyOnFailure}
	restartActions   = []v1.ContainerRestartRuleAction{v1.ContainerRestartRuleActionRestart, v1.ContainerRestartRuleActionRestartAllContainers}
	restartOperators = []v1.ContainerRestartRuleOnExitCodesOperator{v1.ContainerRestartRuleOnExitCodesOpIn, v1.ContainerRestartRuleOnExitCodesOpNotIn}
)

// restarts validates a container's own restart policy and its rules. If an init container has rules but no policy, its
// rules are not validated.
func (v *checker) restarts(c v1.Container, path *field.Path, init bool) {
	policy, rules := path.Child("restartPolicy"), path.Child("restartPolicyRules")
	switch {
	case c.RestartPolicy != nil:
		oneOf(v, *c.RestartPolicy, restartPolicies, policy)
	case len(c.RestartPolicyRules) > 0:
		v.add(field.Required(policy, "must specify restartPolicy when restart rules are used"))
		if init {
			return
		}
	}
	if n := len(c.RestartPolicyRules); n > maxRestartRules {
		v.add(field.TooMany(rules, n, maxRestartRules))
	}
	for i, r := range c.RestartPolicyRules {
		v.restartRule(r, rules.Index(i))
	}
}

func (v *checker) restartRule(r v1.ContainerRestartRule, path *field.Path) {
	oneOf(v, r.Action, restartActions, path.Child("action"))
	codes := path.Child("exitCodes")
	if r.ExitCodes == nil {
		v.add(field.Required(codes, "must be specified"))
		return
	}
	oneOf(v, r.ExitCodes.Operator, restartOperators, codes.Child("operator"))
	if n := len(r.ExitCodes.Values); n > maxExitCodes {
		v.add(field.TooMany(codes.Child("values"), n, maxExitCodes))
	}
}
