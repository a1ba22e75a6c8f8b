package suggest

import (
	"fmt"
	"slices"
	"strings"
)

// spelling is what a name of another tool is called here.
type spelling struct {
	theirs string
	ours   string // the argument or block
	write  string // an example
	in     string // the block that has it; "" for a common word, which means something else in other blocks
	tool   string // "" is Kubernetes, whose names may also be written in snake case
}

// several is the tool of a name that more than one tool has.
const several = "several tools"

var spellings = []spelling{
	{"startupProbe", "probe", `probe "startup" { … }`, "a target block", ""},
	{"readinessProbe", "probe", `probe "readiness" { … }`, "a target block", ""},
	{"livenessProbe", "probe", `probe "liveness" { … }`, "a target block", ""},
	{"httpGet", "http", "http { … }", "a probe block", ""},
	{"tcpSocket", "tcp", "tcp { … }", "a probe block", ""},
	{"initialDelaySeconds", "initial_delay", `initial_delay = "5s"`, "a probe block", ""},
	{"periodSeconds", "period", `period = "10s"`, "a probe block", ""},
	{"timeoutSeconds", "timeout", `timeout = "1s"`, "a probe block", ""},
	{"successThreshold", "success_threshold", "success_threshold = 1", "a probe block", ""},
	{"failureThreshold", "failure_threshold", "failure_threshold = 3", "a probe block", ""},
	{"terminationGracePeriodSeconds", "termination_grace_period", `termination_grace_period = "30s"`, "a target or probe block", ""},
	{"httpHeaders", "headers", `headers = { Host = "example.com" }`, "an http block", ""},
	{"httpHeader", "headers", `headers = { Host = "example.com" }`, "an http block", ""},
	{"preStop", "pre_stop", `pre_stop { sleep = "5s" }`, "a target block", ""},
	{"restartPolicy", "restart_policy", `restart_policy = "always"`, "a target block", ""},
	{"containerPort", "ports", "ports = { http = 8080 }", "a target block", ""},
	{"workingDir", "dir", `dir = "/srv"`, "a process block", ""},
	{"insecureSkipVerify", "verify", "verify = false", "a tls block", ""},
	{"host", "address", `address = "10.0.0.7"`, "", ""},
	{"address", "host", `host = "10.0.0.7"`, "an http, tcp or icmp block", several},
	{"args", "command", `command = ["./worker", "-v"]`, "", ""},

	{"interval", "period", `period = "10s"`, "", "Docker"},
	{"retries", "failure_threshold", "failure_threshold = 3", "", "Docker"},
	{"startPeriod", "initial_delay", `initial_delay = "5s"`, "", "Docker"},
	{"healthcheck", "probe", `probe "readiness" { … }`, "", "Docker"},
	{"test", "exec", `exec { command = ["…"] }`, "", "Docker"},
	{"envFile", "env_file", `env_file = "/etc/web.env"`, "a process block", "Docker"},
	{"restartPolicyRules", "restart_exit_codes", `restart_exit_codes = [42, "64-78"]`, "a target block", ""},
	{"restartForceExitStatus", "restart_exit_codes", `restart_exit_codes = [42, "64-78"]`, "a target block", "systemd"},
	{"watchdogSec", "watchdog", `watchdog = "30s"`, "a process block", "systemd"},
	{"timeoutStartSec", "ready_timeout", `ready_timeout = "90s"`, "a process block", "systemd"},
	{"type", "notify", "notify = true", "a process block", "systemd"},
	{"ulimits", "rlimits", "rlimits = { nofile = 65536 }", "a process block", "Docker"},

	{"validStatusCodes", "status", `status = ["200-299"]`, "", "the blackbox exporter"},
	{"validHTTPStatus", "status", `status = ["200-299"]`, "", several},
	{"proxyUrl", "proxy", `proxy { url = "http://proxy:3128" }`, "an http block", "the blackbox exporter"},
	{"preferredIpProtocol", "ip_family", `ip_family = "prefer_4"`, "an http, tcp or icmp block", "the blackbox exporter"},
	{"failIfBodyNotMatchesRegexp", "body_regex", `body_regex = "ok"`, "", "the blackbox exporter"},
	{"tlsConfig", "tls", "tls { … }", "", "the blackbox exporter"},
	{"url", "path", `path = "/healthz"`, "", several},
	{"uri", "path", `path = "/healthz"`, "", "HAProxy"},

	{"inter", "period", `period = "2s"`, "", "HAProxy"},
	{"rise", "success_threshold", "success_threshold = 2", "", "HAProxy"},
	{"fall", "failure_threshold", "failure_threshold = 3", "", "HAProxy"},
	{"healthyThreshold", "success_threshold", "success_threshold = 2", "", "AWS"},
	{"unhealthyThreshold", "failure_threshold", "failure_threshold = 3", "", "AWS"},
	{"matcher", "status", `status = ["200-299"]`, "an http block", "AWS"},

	{"autorestart", "restart_policy", `restart_policy = "always"`, "a target block", "supervisord"},
	{"stopwaitsecs", "termination_grace_period", `termination_grace_period = "10s"`, "a target block", "supervisord"},
	{"stopsignal", "stop_signal", `stop_signal = "SIGINT"`, "a target block", "supervisord"},
	{"stdoutLogfile", "log", `log { file = "/var/log/web.log" }`, "a process block", "supervisord"},
	{"standardOutput", "log", `log { file = "/var/log/web.log" }`, "a process block", "systemd"},
	{"killSignal", "stop_signal", `stop_signal = "SIGINT"`, "a target block", "systemd"},
	{"after", "start_after", `start_after = ["db"]`, "a target block", "systemd"},
	{"directory", "dir", `dir = "/srv"`, "", "supervisord"},
	{"workingDirectory", "dir", `dir = "/srv"`, "", "systemd"},
	{"environment", "env", `env = { NAME = "…" }`, "", "supervisord"},
	{"environmentFile", "env_file", `env_file = "/etc/web.env"`, "a process block", "systemd"},
	{"limitNOFILE", "rlimits", "rlimits = { nofile = 65536 }", "a process block", "systemd"},
	{"minfds", "rlimits", "rlimits = { nofile = 65536 }", "a process block", "supervisord"},
	{"minprocs", "rlimits", "rlimits = { nproc = 4096 }", "a process block", "supervisord"},
	{"startProgram", "command", `command = ["/etc/init.d/web", "start"]`, "", "monit"},
	{"execStart", "command", `command = ["/srv/web"]`, "", "systemd"},

	{"count", "for_each", `for_each = toset(["a", "b"])`, "", "Terraform"},
	{"resource", "target", `target "web" { … }`, "", "Terraform"},
	{"service", "target", `target "web" { … }`, "", "Consul"},
	{"backend", "target", `target "web" { … }`, "", "HAProxy"},
	{"job", "target", `target "web" { … }`, "", "Nomad"},
	{"check", "probe", `probe "readiness" { … }`, "", several},
}

// absence is a name of another tool for something that does not exist here.
type absence struct {
	name   string
	beside string // a name that is known in the block in which people write it
	hint   string
}

var absences = []absence{
	{"slack", "webhook", webhookWith("text")},
	{"mattermost", "webhook", webhookWith("text")},
	{"discord", "webhook", webhookWith("content")},
	{"teams", "webhook", throughAlertmanager},
	{"pagerduty", "webhook", throughAlertmanager},
	{"opsgenie", "webhook", throughAlertmanager},
	{"telegram", "webhook", throughAlertmanager},
	{"email", "webhook", throughAlertmanager},
	{"smtp", "webhook", throughAlertmanager},
	{"image", "ports", `images are not run; a program of this machine is: process { command = ["…"] }`},
	{"containers", "ports", `write each container as a target of its own: target "web" { process { … } }`},
	{"lifecycle", "ports", "write preStop as pre_stop { … }, and stopSignal as stop_signal; there is no postStart: write it into the command"},
	{"resources", "lines_per_second", `rlimits = { as = "1GiB" } bounds each process; those of a control group are set outside, by systemd`},
	{"stop_signal", "lines_per_second", "stop_signal stands beside the process block, in the target block"},
	{"prober", "on_error", "write the handler as a block: http { … }, tcp { … }, icmp { … } or exec { … }"},
	{"modules", "variable", "write the settings into each probe, or those of all probes into defaults { … }"},
	{"dynamic", "variable", `a target block makes several targets: target "web" { for_each = toset(["a", "b"]) }`},
	{"start", "reason", `a maintenance begins by cron and lasts for duration: cron = "0 3 * * *"`},
	{"end", "reason", "a maintenance ends after duration"},
	{"terraform", "variable", "only variable, locals, for_each, dynamic and functions are as in Terraform"},
	{"provider", "variable", `plugins add handlers: plugin "name" { source = "…" }`},
	{"module", "variable", "there are no modules: all *.hcl files of a directory are one configuration"},
	{"output", "variable", "there are no outputs: the API and sonde status show the state"},
}

// throughAlertmanager is the hint for receivers that an Alertmanager knows.
const throughAlertmanager = "write alertmanager { … }: an Alertmanager sends to it; or run { … } with a program that does"

// webhookWith returns the hint for a receiver whose JSON has one text.
func webhookWith(field string) string {
	return "write webhook {\n  url  = \"https://…\"\n  body = jsonencode({ " + field + " = \"$(summary)\" })\n}"
}

// FromTool returns a hint for a name that another tool has for something that has another
// name here, and "" for any other name. A name may be in camel case or in snake case. Known
// are the names that are allowed where it was written.
func FromTool(name string, known []string) string {
	plain := func(s string) string { return strings.ReplaceAll(fold(s), "_", "") }
	i := slices.IndexFunc(spellings, func(s spelling) bool {
		return plain(s.theirs) == plain(name) && s.ours != name && (s.in != "" || slices.Contains(known, s.ours))
	})
	if i < 0 {
		for _, a := range absences {
			if a.name == name && slices.Contains(known, a.beside) {
				return a.hint
			}
		}
		return ""
	}
	s := spellings[i]
	written := fmt.Sprintf("Kubernetes' %s is written %s here", s.theirs, s.write)
	switch s.tool {
	case "":
	case several:
		written = fmt.Sprintf("%s, as several tools call it, is written %s here", name, s.write)
	default:
		written = fmt.Sprintf("%s's %s is written %s here", s.tool, name, s.write)
	}
	if slices.Contains(known, s.ours) {
		return fmt.Sprintf("did you mean %q? %s", s.ours, written)
	}
	return written + ", in " + s.in
}
