package config

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"regexp"
	"strings"
	"time"

	"github.com/sonde-probe/sonde/probe"
)

// The handlers of the tests have the shapes of the built-in ones.

type execConfig struct {
	Command []string          `hcl:"command"`
	Env     map[string]string `hcl:"env,optional"`
	Dir     string            `hcl:"dir,optional"`
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
	UnixSocket      string              `hcl:"unix_socket,optional"`
	ReuseConnection bool                `hcl:"reuse_connection,optional"`
	Compatibility   probe.Compatibility `hcl:"-"`
}

type tlsConfig struct {
	Verify     *bool  `hcl:"verify,optional"`
	CAFile     string `hcl:"ca_file,optional"`
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

// fake is a handler that remembers what it was made of.
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

// testHandlers are what the tests' configurations can use.
func testHandlers() map[string]Handler {
	return map[string]Handler{"exec": Of(newExec), "http": Of(newHTTP), "tcp": Of(newTCP)}
}

// noEnv is an empty environment.
func noEnv(string) (string, bool) { return "", false }
