package kube

import (
	"slices"

	v1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/util/validation/field"
)

// Limits of the API server (validateContainerRestartPolicy in
// k8s.io/kubernetes/pkg/apis/core/validation).
const (
	maxRestartRules = 20
	maxExitCodes    = 255 // of a rule
)

// Valid values of restart policies and rules, sorted.
var (
	restartPolicies  = []v1.ContainerRestartPolicy{v1.ContainerRestartPolicyAlways, v1.ContainerRestartPolicyNever, v1.ContainerRestartPolicyOnFailure}
	restartActions   = []v1.ContainerRestartRuleAction{v1.ContainerRestartRuleActionRestart, v1.ContainerRestartRuleActionRestartAllContainers}
	restartOperators = []v1.ContainerRestartRuleOnExitCodesOperator{v1.ContainerRestartRuleOnExitCodesOpIn, v1.ContainerRestartRuleOnExitCodesOpNotIn}
)

// validateRestarts checks a container's own restart policy and its rules.
func validateRestarts(c v1.Container, path *field.Path) field.ErrorList {
	var found field.ErrorList
	policy, rules := path.Child("restartPolicy"), path.Child("restartPolicyRules")
	switch {
	case c.RestartPolicy == nil && len(c.RestartPolicyRules) > 0:
		found = append(found, noPolicy(path))
	case c.RestartPolicy != nil && !slices.Contains(restartPolicies, *c.RestartPolicy):
		found = append(found, field.NotSupported(policy, *c.RestartPolicy, restartPolicies))
	}
	if n := len(c.RestartPolicyRules); n > maxRestartRules {
		found = append(found, field.TooMany(rules, n, maxRestartRules))
	}
	for i, r := range c.RestartPolicyRules {
		found = append(found, validateRestartRule(r, rules.Index(i))...)
	}
	return found
}

// validateInitRestarts is validateRestarts for an init container, whose rules are not
// checked without a policy.
func validateInitRestarts(c v1.Container, path *field.Path) field.ErrorList {
	if c.RestartPolicy == nil && len(c.RestartPolicyRules) > 0 {
		return field.ErrorList{noPolicy(path)}
	}
	return validateRestarts(c, path)
}

func noPolicy(path *field.Path) *field.Error {
	return field.Required(path.Child("restartPolicy"), "must specify restartPolicy when restart rules are used")
}

func validateRestartRule(r v1.ContainerRestartRule, path *field.Path) field.ErrorList {
	var found field.ErrorList
	if !slices.Contains(restartActions, r.Action) {
		found = append(found, field.NotSupported(path.Child("action"), r.Action, restartActions))
	}
	codes := path.Child("exitCodes")
	if r.ExitCodes == nil {
		return append(found, field.Required(codes, "must be specified"))
	}
	if !slices.Contains(restartOperators, r.ExitCodes.Operator) {
		found = append(found, field.NotSupported(codes.Child("operator"), r.ExitCodes.Operator, restartOperators))
	}
	if n := len(r.ExitCodes.Values); n > maxExitCodes {
		found = append(found, field.TooMany(codes.Child("values"), n, maxExitCodes))
	}
	return found
}
