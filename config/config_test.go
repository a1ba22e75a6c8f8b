package config

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"reflect"
	"regexp"
	"slices"
	"strings"
	"time"

	"github.com/sonde-probe/sonde/probe"
)

// The handlers of the tests have the fields of the built-in ones.

type execConfig struct {
	Command []string          `hcl:"command"`
	Env     map[string]string `hcl:"env,optional"`
	Dir     string            `hcl:"dir,optional,path"`
	User    string            `hcl:"user,optional"`
}

type httpConfig struct {
	Method          string              `hcl:"method,optional"`
	Path            string              `hcl:"path,optional"`
	Port            string              `hcl:"port,optional"`
	Host            string              `hcl:"host,optional"`
	Scheme          string              `hcl:"scheme,optional"`
	Headers         map[string][]string `hcl:"headers,optional"`
	Body            string              `hcl:"body,optional"`
	Status          []string            `hcl:"status,optional"`
	BodyContains    string              `hcl:"body_contains,optional"`
	BodyRegex       string              `hcl:"body_regex,optional"`
	Redirects       string              `hcl:"redirects,optional"`
	TLS             *tlsConfig          `hcl:"tls,block"`
	UnixSocket      string              `hcl:"unix_socket,optional,socket"`
	ReuseConnection bool                `hcl:"reuse_connection,optional"`
	Compatibility   probe.Compatibility `hcl:"-"`
}

type tlsConfig struct {
	Verify     *bool  `hcl:"verify,optional"`
	CAFile     string `hcl:"ca_file,optional,path"`
	ServerName string `hcl:"server_name,optional"`
}

type tcpConfig struct {
	Port   string        `hcl:"port,optional"`
	Host   string        `hcl:"host,optional"`
	Send   string        `hcl:"send,optional"`
	Expect string        `hcl:"expect,optional"`
	Linger time.Duration `hcl:"linger,optional"`
	Weight float64       `hcl:"weight,optional"`
	Tries  int           `hcl:"tries,optional"`
	Token  string        `hcl:"token,optional,sensitive"`
}

// fake is a handler that keeps its configuration.
type fake struct {
	config any
	port   string
}

func (f *fake) Probe(context.Context, probe.Target) probe.Result { return probe.Succeed("") }

func (f *fake) Check(t probe.Target) error {
	if f.port == "" {
		return nil
	}
	if _, err := t.Port(f.port); err != nil {
		return &probe.FieldError{Field: "port", Problem: fmt.Sprintf("is %q, which the target does not have", f.port)}
	}
	if t.Address == "" {
		return errors.New("the target has no address")
	}
	return nil
}

func newExec(c execConfig) (*fake, error) {
	if len(c.Command) == 0 {
		return nil, &probe.FieldError{Field: "command", Problem: "must not be empty"}
	}
	return &fake{config: c}, nil
}

func newHTTP(c httpConfig) (*fake, error) {
	var wrong []error
	if c.Scheme != "" && c.Scheme != "http" && c.Scheme != "https" {
		wrong = append(wrong, &probe.FieldError{Field: "scheme", Problem: "must be http or https"})
	}
	if _, err := regexp.Compile(c.BodyRegex); err != nil {
		wrong = append(wrong, &probe.FieldError{Field: "body_regex", Problem: fmt.Sprintf("is not a regular expression: %v", err)})
	}
	if c.TLS != nil && strings.HasPrefix(c.TLS.CAFile, "missing") {
		wrong = append(wrong, &probe.FieldError{Field: "tls.ca_file", Problem: "cannot be read: no such file"})
	}
	if len(wrong) > 0 {
		return nil, errors.Join(wrong...)
	}
	return &fake{config: c, port: cmp.Or(c.Port, "80")}, nil
}

func newTCP(c tcpConfig) (*fake, error) {
	if c.Port == "" {
		return nil, &probe.FieldError{Field: "port", Problem: "must be given"}
	}
	if len(c.Token) == 1 {
		return nil, &probe.FieldError{Field: "token", Problem: fmt.Sprintf("is too short: %s", c.Token)}
	}
	return &fake{config: c, port: c.Port}, nil
}

// The settings of the tests have the fields of package restart's and wasmhost's.

type budgetConfig struct {
	Budget struct {
		Max   int           `hcl:"max,optional,nonzero"`
		Share share         `hcl:"share,optional"`
		Per   time.Duration `hcl:"per,nonzero"`
	} `hcl:"restart_budget,object"`
}

// share is a percentage.
type share float64

func (s *share) UnmarshalText(b []byte) error {
	if !strings.HasSuffix(string(b), "%") {
		return errors.New("must be a percentage")
	}
	_, err := fmt.Sscanf(string(b), "%g%%", (*float64)(s))
	*s /= 100
	return err
}

func (c budgetConfig) check() error {
	var wrong probe.FieldErrors
	if c.Budget.Max < 0 {
		wrong.Add("restart_budget.max", "must be 1 or more")
	}
	if c.Budget.Per < 0 {
		wrong.Add("restart_budget.per", "must be greater than 0")
	}
	if c.Budget.Per > 0 && c.Budget.Max == 0 && c.Budget.Share == 0 {
		wrong.Add("restart_budget", "needs max or share")
	}
	return wrong.Err()
}

type unitConfig struct {
	Policy                 policy        `hcl:"restart_policy,optional"`
	TerminationGracePeriod time.Duration `hcl:"termination_grace_period,optional,nonzero"`
	BackOff                backOffConfig `hcl:"back_off,block"`
}

type backOffConfig struct {
	Initial time.Duration `hcl:"initial,optional,nonzero"`
	Max     time.Duration `hcl:"max,optional,nonzero"`
	Reset   time.Duration `hcl:"reset,optional,nonzero"`
}

func (u unitConfig) WithDefaults() unitConfig {
	u.TerminationGracePeriod = cmp.Or(u.TerminationGracePeriod, 30*time.Second)
	return u
}

func (u unitConfig) check() error {
	var wrong probe.FieldErrors
	if u.TerminationGracePeriod < 0 {
		wrong.Add("termination_grace_period", "is %v; it must be greater than 0", u.TerminationGracePeriod)
	}
	if u.BackOff.Max > 0 && u.BackOff.Initial > u.BackOff.Max {
		wrong.Add("back_off.max", "is %v; it must not be less than initial (%v)", u.BackOff.Max, u.BackOff.Initial)
	}
	return wrong.Err()
}

// policy is an enumeration with text methods.
type policy uint8

var policyWords = []string{"always", "on_failure", "never"}

func (p policy) MarshalText() ([]byte, error) {
	if int(p) >= len(policyWords) {
		return nil, errors.New("invalid")
	}
	return []byte(policyWords[p]), nil
}

func (p *policy) UnmarshalText(b []byte) error {
	i := slices.Index(policyWords, string(b))
	*p = policy(max(i, 0))
	if i < 0 {
		return errors.New("is wrong")
	}
	return nil
}

type processConfig execConfig

type restartConfig struct {
	Command []string      `hcl:"command"`
	Timeout time.Duration `hcl:"timeout,optional,nonzero"`
}

func (c processConfig) check(Context) error {
	var wrong probe.FieldErrors
	if len(c.Command) == 0 || c.Command[0] == "" {
		wrong.Add("command", "must name a program")
	}
	if slices.ContainsFunc(c.Command, func(s string) bool { return strings.Contains(s, "\x00") }) {
		wrong.Add("command", "has a NUL byte in word 1")
	}
	for name := range c.Env {
		if strings.Contains(name, "=") {
			wrong.Add("env", "has the name %q, a name must not contain =", name)
		}
	}
	return wrong.Err()
}

func (c processConfig) target() probe.Target {
	return probe.Target{Address: "127.0.0.1", Env: c.Env, Dir: c.Dir, User: c.User}
}

type pluginConfig struct {
	OnTrap probe.Outcome `hcl:"on_trap,optional" oneof:"unknown failure"`
	Grant  grantConfig   `hcl:"grant,block"`
	Limits limitsConfig  `hcl:"limits,block"`
}

type grantConfig struct {
	Dial []string `hcl:"dial,optional"`
	Env  []string `hcl:"env,optional"`
	DNS  []string `hcl:"dns,optional"`
}

type limitsConfig struct {
	Memory      int64         `hcl:"memory,optional,nonzero,bytes"`
	ModuleSize  int64         `hcl:"module_size,optional,nonzero,bytes"`
	Instances   int           `hcl:"instances,optional,nonzero"`
	Connections int           `hcl:"connections,optional,nonzero"`
	Dials       int           `hcl:"dials,optional,nonzero"`
	BytesIn     int64         `hcl:"bytes_in,optional,nonzero,bytes"`
	BytesOut    int64         `hcl:"bytes_out,optional,nonzero,bytes"`
	Log         int           `hcl:"log,optional,nonzero,bytes"`
	Start       time.Duration `hcl:"start,optional,nonzero"`
}

// localDriver returns a driver whose targets run on the host of the engine.
func localDriver(d Driver) Driver {
	d.IsLocal = true
	return d
}

// testOptions returns what the configurations of the tests can use.
func testOptions() Options {
	return Options{
		Listen:   "127.0.0.1:9650",
		Handlers: map[string]Handler{"exec": Of(newExec), "http": Of(newHTTP), "tcp": Of(newTCP)},
		Drivers: map[string]Driver{
			"process": localDriver(DriverOf(processConfig.check, processConfig.target)),
			"restart": DriverOf[restartConfig](nil, nil),
		},
		Gateways: map[string]Settings{
			"agent": SettingsOf[struct {
				Listen string `hcl:"listen"`
			}](nil),
			"render": SettingsOf[struct {
				Path string `hcl:"path"`
			}](nil),
		},
		GatewayConflict: func(a, b Gateway) *probe.FieldError {
			if a.Output == "render" && reflect.DeepEqual(a.Settings, b.Settings) {
				return &probe.FieldError{Field: "path", Problem: "is that of another gateway, too", Hint: "write another path"}
			}
			return nil
		},
		Notifiers: map[string]Settings{
			"pager": SettingsOf[struct {
				URL string `hcl:"url"`
			}](nil),
			"siren": SettingsOf[struct {
				Volume int `hcl:"volume"`
			}](nil),
		},
		EngineSettings: SettingsOf(budgetConfig.check),
		TargetSettings: SettingsOf(unitConfig.check),
		PluginSettings: SettingsOf[pluginConfig](nil),
		Plugin:         testPlugin,
		CheckAllowed: func(s string) error {
			if strings.Contains(s, "/") {
				return errors.New("it must be a host")
			}
			return nil
		},
		Env: noEnv,
	}
}

// noEnv is an empty environment.
func noEnv(string) (string, bool) { return "", false }
