package discover

import (
	"encoding/json"
	"errors"
	"fmt"

	"sigs.k8s.io/yaml"

	"github.com/sonde-probe/sonde/internal/anchors"
	"github.com/sonde-probe/sonde/probe"
)

// targetGroup is a group of targets in the format of Prometheus (file_sd_config and http_sd_config).
type targetGroup struct {
	Targets []string          `json:"targets"`
	Labels  map[string]string `json:"labels"`
}

// parseGroups parses a list of groups in JSON or YAML.
func parseGroups(text []byte, isYAML bool) (Elements, error) {
	if isYAML {
		if err := anchors.Check(text); err != nil {
			return nil, err
		}
		asJSON, err := yaml.YAMLToJSON(text)
		if err != nil {
			return nil, err
		}
		text = asJSON
	}
	var groups []targetGroup
	if err := json.Unmarshal(text, &groups); err != nil {
		var wrong *json.UnmarshalTypeError
		if errors.As(err, &wrong) {
			return nil, fmt.Errorf(`a list of groups is wanted, such as [{"targets": ["10.0.0.7:80"], "labels": {"job": "web"}}]: %w`, err)
		}
		return nil, err
	}
	if groups == nil {
		return nil, errors.New("there is no list of groups")
	}
	a := &answer{Elements: Elements{}}
	for i, g := range groups {
		if err := g.addTo(a); err != nil {
			return nil, fmt.Errorf("group %d: %w", i+1, err)
		}
	}
	return a.Elements, a.err()
}

func (g targetGroup) addTo(a *answer) error {
	labels, meta := map[string]string{}, map[string]string{}
	for name, value := range g.Labels {
		if len(name)+len(value) > maxLabel {
			return fmt.Errorf("the label %.40q has more than %d bytes", name, maxLabel)
		}
		if probe.CheckLabel(name, value) != nil {
			meta[name] = value
		} else {
			labels[name] = value
		}
	}
	for _, text := range g.Targets {
		e, ok := address(text)
		if !ok {
			a.leaveOut("%.80q is not an address: write HOST:PORT or HOST", text)
			continue
		}
		e.Labels, e.Meta = labels, meta // shared; must not be modified
		if err := a.add(e); err != nil {
			return err
		}
	}
	return nil
}
