package compose

import (
	"cmp"
	"encoding/json"
	"errors"
	"fmt"
	"maps"
	"slices"
	"strconv"
	"strings"
	"time"

	"github.com/sonde-probe/sonde/config"
	"github.com/sonde-probe/sonde/probe"
)

// service holds the supported keys of a service.
type service struct {
	Health          *health               `json:"healthcheck"`
	DependsOn       map[string]dependency `json:"depends_on"`
	Restart         string                `json:"restart"`
	Profiles        []string              `json:"profiles"`
	Scale           *number               `json:"scale"`
	StopGracePeriod string                `json:"stop_grace_period"`
	Extends         any                   `json:"extends"`
	Deploy          struct {
		Replicas      *number `json:"replicas"`
		RestartPolicy struct {
			Condition string `json:"condition"`
		} `json:"restart_policy"`
	} `json:"deploy"`
}

// dependency is an entry of depends_on.
type dependency struct {
	Condition string `json:"condition"`
}

// completed is the condition of a dependency that must exit successfully.
const completed = "service_completed_successfully"

// keys are the supported keys of a service.
var keys = []string{"healthcheck", "depends_on", "restart", "profiles", "scale", "stop_grace_period", "extends", "deploy"}

// readService reads a service.
func (p *project) readService(fields map[string]node) (s service, err error) {
	read := map[string]any{}
	for _, key := range keys {
		if value, isGiven := fields[key]; isGiven {
			if read[key], err = p.value(value); err != nil {
				return s, fmt.Errorf("%s: %w", key, err)
			}
		}
	}
	text, err := json.Marshal(read)
	if err != nil {
		return s, err
	}
	err = json.Unmarshal(text, &s)
	if wrong := (*json.UnmarshalTypeError)(nil); errors.As(err, &wrong) {
		return s, fmt.Errorf("%s must not be of the type %s", wrong.Field, wrong.Value)
	}
	return s, err
}

// value returns a value for JSON, with its variables expanded.
func (p *project) value(n node) (any, error) {
	switch v := n.value.(type) {
	case string:
		return p.variables.expand(v)
	case []node:
		list := make([]any, len(v))
		for i, e := range v {
			var err error
			if list[i], err = p.value(e); err != nil {
				return nil, err
			}
		}
		return list, nil
	case map[string]node:
		fields := make(map[string]any, len(v))
		for name, field := range v {
			field, err := p.value(field)
			if err != nil {
				return nil, fmt.Errorf("%s: %w", name, err)
			}
			fields[name] = field
		}
		return fields, nil
	}
	return nil, nil
}

// number is a whole number.
type number int64

// UnmarshalText implements encoding.TextUnmarshaler.
func (n *number) UnmarshalText(text []byte) error {
	parsed, err := strconv.ParseInt(string(text), 10, 32)
	if err != nil {
		return fmt.Errorf("%.40q is not a whole number", text)
	}
	*n = number(parsed)
	return nil
}

// replicas returns the number of the service's containers.
func (s service) replicas() int {
	switch {
	case s.Scale != nil:
		return int(*s.Scale)
	case s.Deploy.Replicas != nil:
		return int(*s.Deploy.Replicas)
	}
	return 1
}

// policies maps the restart policies of compose files to those of containers.
var policies = map[string]string{
	"": "no", "no": "no", "none": "no", "always": "always", "any": "always", "unless-stopped": "always", "on-failure": "on-failure",
}

// restart returns the restart policy of the container in its runtime: no, always or on-failure.
func (s service) restart() (policy string, isGiven bool, err error) {
	text := cmp.Or(s.Restart, s.Deploy.RestartPolicy.Condition)
	name, _, _ := strings.Cut(text, ":") // on-failure:3
	policy, isKnown := policies[name]
	if !isKnown {
		return "", false, fmt.Errorf("restart is %q; %s are allowed", text, strings.Join(slices.Sorted(maps.Keys(policies))[1:], ", "))
	}
	return policy, text != "", nil
}

// duration parses a duration of a compose file.
func duration(field, text string) (time.Duration, error) {
	d, isDuration := config.ParseDuration(text)
	if text == "0" {
		d, isDuration = 0, true
	}
	if !isDuration || d < 0 || d > probe.MaxDuration {
		return 0, fmt.Errorf("%s is %q; write a duration, such as 30s or 1m30s", field, text)
	}
	return d, nil
}
