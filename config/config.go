package config

import (
	"fmt"
	"strconv"
	"strings"
	"time"

	"github.com/sonde-probe/sonde/probe"
)

// Config is what a configuration asks for.
type Config struct {
	Engine  Engine
	Set     probe.Set
	Targets map[string]Target // by name: web, or web["a"] for an element of for_each
	Plugins map[string]Plugin // by name
}

// Engine is the engine block.
type Engine struct {
	Listen        string              `hcl:"listen,optional"`        // address of page, API and /metrics; default DefaultListen; "" for none
	Concurrency   int                 `hcl:"concurrency,optional"`   // attempts at once, 1 to MaxConcurrency; default: the engine's own
	Compatibility probe.Compatibility `hcl:"compatibility,optional"` // none or kubelet; default none
	RestartBudget *Budget             `hcl:"restart_budget,object"`  // how many restarts liveness may cause; default: any number
	TokenFile     string              `hcl:"token_file,optional"`    // a file whose text the API asks of its callers; default: none asked
	TLS           *TLS                `hcl:"tls,block"`              // default: plain HTTP
	LogLevel      LogLevel            `hcl:"log_level,optional"`     // debug, info, warn or error; default info
	LogFormat     LogFormat           `hcl:"log_format,optional"`    // auto, text or json; default auto: text on a terminal

	// PluginCache is a directory for the compiled code of plugins, "" for none.
	// Default: sonde/plugins in the user's own cache directory. It is made, and
	// nobody else may be able to write to it: its content is run.
	PluginCache *string `hcl:"plugin_cache,optional"`
}

// Defaults and bounds of the engine block.
const (
	DefaultListen  = "127.0.0.1:9650"
	MaxConcurrency = 1 << 20
)

// Budget bounds the restarts that failing liveness probes cause. Where both Max
// and Share are given, the smaller number counts.
type Budget struct {
	Max   int           `hcl:"max,optional"`   // restarts in each Per, 1 or more; 0 when only Share is given
	Share Share         `hcl:"share,optional"` // of all targets in each Per, written "10%"; 0 when only Max is given
	Per   time.Duration `hcl:"per"`            // more than 0
}

// Share is a part of a whole, from 0 to 1.
type Share float64

// UnmarshalText reads "10%".
func (s *Share) UnmarshalText(b []byte) error {
	number, percent := strings.CutSuffix(string(b), "%")
	n, err := strconv.ParseFloat(number, 64)
	if err != nil || !percent || !(n > 0 && n <= 100) {
		return fmt.Errorf(`must be a share from above 0%% to 100%%, written "10%%"`)
	}
	*s = Share(n / 100)
	return nil
}

// TLS is how the API is served. Relative paths start at the working directory.
type TLS struct {
	CertFile     string `hcl:"cert_file"`               // PEM, with the intermediate certificates
	KeyFile      string `hcl:"key_file"`                // PEM
	ClientCAFile string `hcl:"client_ca_file,optional"` // PEM; callers need a certificate signed by one of these; default: they need none
}

// LogLevel is the least level that is logged: debug, info, warn or error.
type LogLevel string

// UnmarshalText refuses other words.
func (l *LogLevel) UnmarshalText(b []byte) error {
	return oneOf((*string)(l), b, "debug", "info", "warn", "error")
}

// LogFormat is how log lines look: auto, text or json.
type LogFormat string

// UnmarshalText refuses other words.
func (l *LogFormat) UnmarshalText(b []byte) error {
	return oneOf((*string)(l), b, "auto", "text", "json")
}

// Target is what has to be known of a target beside its probes: who restarts
// it, and how.
type Target struct {
	Process                *Process      // the engine starts it; nil when something else does
	Restart                *Restart      // how to restart what something else runs; nil for never
	TerminationGracePeriod time.Duration // default DefaultTerminationGracePeriod
	RestartPolicy          RestartPolicy // default always
	BackOff                BackOff
}

// DefaultTerminationGracePeriod is that of the Kubernetes API server.
const DefaultTerminationGracePeriod = 30 * time.Second

// Process is the process {} block: a command that the engine starts, watches
// and restarts. Exec probes of the target inherit Env, Dir and User.
type Process struct {
	Command []string          `hcl:"command"`       // program and arguments; no shell
	Env     map[string]string `hcl:"env,optional"`  // added to the engine's own
	Dir     string            `hcl:"dir,optional"`  // default: the engine's own
	User    string            `hcl:"user,optional"` // name or number; default: the engine's own
}

// Restart is the restart {} block: a command that restarts what something else
// runs, such as systemctl restart web.
type Restart struct {
	Command []string          `hcl:"command"`          // program and arguments; no shell
	Timeout time.Duration     `hcl:"timeout,optional"` // default DefaultRestartTimeout
	Env     map[string]string `hcl:"env,optional"`     // added to the engine's own
	Dir     string            `hcl:"dir,optional"`     // default: the engine's own
	User    string            `hcl:"user,optional"`    // name or number; default: the engine's own
}

// DefaultRestartTimeout is how long a restart command may take: systemd's
// own DefaultTimeoutStartSec.
const DefaultRestartTimeout = 90 * time.Second

// RestartPolicy says which ends of a target's life are followed by another
// life. The words mean what they mean in Kubernetes.
type RestartPolicy string

// The restart policies.
const (
	RestartAlways    RestartPolicy = "always"
	RestartOnFailure RestartPolicy = "on_failure"
	RestartNever     RestartPolicy = "never"
)

// UnmarshalText refuses other words.
func (r *RestartPolicy) UnmarshalText(b []byte) error {
	return oneOf((*string)(r), b, string(RestartAlways), string(RestartOnFailure), string(RestartNever))
}

// BackOff is how long to wait before the next life. It doubles from Initial to
// Max with each life that ends, and begins again after one that lasted Reset.
type BackOff struct {
	Initial time.Duration `hcl:"initial,optional"` // default 10s
	Max     time.Duration `hcl:"max,optional"`     // default 5m; at least Initial
	Reset   time.Duration `hcl:"reset,optional"`   // default 10m
}

// DefaultBackOff returns the kubelet's own (MaxContainerBackOff and
// backOffPeriod in k8s.io/kubernetes/pkg/kubelet).
func DefaultBackOff() BackOff {
	return BackOff{Initial: 10 * time.Second, Max: 5 * time.Minute, Reset: 10 * time.Minute}
}

// oneOf sets a word that is one of those known.
func oneOf(to *string, b []byte, known ...string) error {
	for _, k := range known {
		if k == string(b) {
			*to = k
			return nil
		}
	}
	return fmt.Errorf("is %q, it must be one of %s", b, strings.Join(known, ", "))
}
