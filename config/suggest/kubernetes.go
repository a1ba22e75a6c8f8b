package suggest

import (
	"fmt"
	"slices"
	"strings"
)

// spelling is what a field of Kubernetes' pod specification is called here.
type spelling struct {
	kubernetes string
	ours       string // the argument or block
	write      string // an example
	in         string // the block that has it; "" for a common word, which means something else in other blocks
}

var spellings = []spelling{
	{"startupProbe", "probe", `probe "startup" { … }`, "a target block"},
	{"readinessProbe", "probe", `probe "readiness" { … }`, "a target block"},
	{"livenessProbe", "probe", `probe "liveness" { … }`, "a target block"},
	{"httpGet", "http", "http { … }", "a probe block"},
	{"tcpSocket", "tcp", "tcp { … }", "a probe block"},
	{"initialDelaySeconds", "initial_delay", `initial_delay = "5s"`, "a probe block"},
	{"periodSeconds", "period", `period = "10s"`, "a probe block"},
	{"timeoutSeconds", "timeout", `timeout = "1s"`, "a probe block"},
	{"successThreshold", "success_threshold", "success_threshold = 1", "a probe block"},
	{"failureThreshold", "failure_threshold", "failure_threshold = 3", "a probe block"},
	{"terminationGracePeriodSeconds", "termination_grace_period", `termination_grace_period = "30s"`, "a target or probe block"},
	{"httpHeaders", "headers", `headers = { Host = "example.com" }`, "an http block"},
	{"httpHeader", "headers", `headers = { Host = "example.com" }`, "an http block"},
	{"restartPolicy", "restart_policy", `restart_policy = "always"`, "a target block"},
	{"containerPort", "ports", "ports = { http = 8080 }", "a target block"},
	{"workingDir", "dir", `dir = "/srv"`, "a process block"},
	{"insecureSkipVerify", "verify", "verify = false", "a tls block"},
	{"host", "address", `address = "10.0.0.7"`, ""},
	{"args", "command", `command = ["./worker", "-v"]`, ""},
}

// FromKubernetes returns a hint for a name that is a field of Kubernetes' pod
// specification, in camel case or, as Terraform writes it, in snake case, and ""
// for any other name. Known are the names that are allowed where it was written.
func FromKubernetes(name string, known []string) string {
	plain := func(s string) string { return strings.ReplaceAll(fold(s), "_", "") }
	i := slices.IndexFunc(spellings, func(s spelling) bool { return plain(s.kubernetes) == plain(name) && s.ours != name })
	if i < 0 {
		return ""
	}
	s := spellings[i]
	switch {
	case slices.Contains(known, s.ours):
		return fmt.Sprintf("did you mean %q? Kubernetes' %s is written %s here", s.ours, s.kubernetes, s.write)
	case s.in == "":
		return ""
	}
	return fmt.Sprintf("Kubernetes' %s is written %s here, in %s", s.kubernetes, s.write, s.in)
}
