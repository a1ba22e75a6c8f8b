package compose

import (
	"bytes"
	"fmt"
	"maps"
	"os"
	"path/filepath"
	"regexp"
	"slices"
	"strings"

	"go.yaml.in/yaml/v2" // not by way of JSON, in which aliases would multiply texts

	"github.com/sonde-probe/sonde/internal/files"
)

// file holds the supported keys of a compose file.
type file struct {
	Name     node                       `yaml:"name"`
	Services map[string]map[string]node `yaml:"services"`
	Include  node                       `yaml:"include"`
}

// node is a value: nil, a string, []node or map[string]node. Numbers and booleans are kept as strings, since some words are
// booleans only in YAML 1.1.
type node struct{ value any }

// UnmarshalYAML implements yaml.Unmarshaler.
func (n *node) UnmarshalYAML(unmarshal func(any) error) error {
	var text *string
	if unmarshal(&text) == nil {
		if text != nil {
			n.value = *text
		}
		return nil
	}
	var list []node
	if unmarshal(&list) == nil {
		n.value = list
		return nil
	}
	var fields map[string]node
	err := unmarshal(&fields)
	n.value = fields
	return err
}

// Recognizes reports whether a text is a compose file.
func Recognizes(text []byte) bool {
	if len(text) > MaxBytes || !bytes.Contains(text, []byte("services")) {
		return false
	}
	var f struct {
		Services map[string]map[string]any `yaml:"services"`
		Kind     any                       `yaml:"kind"`
	}
	return yaml.Unmarshal(text, &f) == nil && len(f.Services) > 0 && f.Kind == nil
}

// mergeTag matches a tag that controls how an override is merged.
var mergeTag = regexp.MustCompile(`(?m)[:-][ \t]+!(?:reset|override)\b`)

// readFile parses a compose file.
func readFile(text []byte) (*file, error) {
	if len(text) > MaxBytes {
		return nil, fmt.Errorf("it is longer than %d bytes", MaxBytes)
	}
	if tag := mergeTag.FindString(string(text)); tag != "" {
		return nil, fmt.Errorf("it has the tag %s, which is not read: use the output of docker compose config", strings.TrimLeft(tag, ":- \t"))
	}
	f := &file{}
	if err := yaml.Unmarshal(text, f); err != nil {
		return nil, fmt.Errorf("it is not a compose file: %s", strings.TrimPrefix(err.Error(), "yaml: "))
	}
	for _, s := range f.Services {
		if names, isList := s["depends_on"].value.([]node); isList {
			byName := map[string]node{}
			for _, name := range names {
				byName[fmt.Sprint(name.value)] = node{map[string]node{}}
			}
			s["depends_on"] = node{byName}
		}
	}
	return f, nil
}

// envFile is the file with variables beside a compose file.
const envFile = ".env"

var (
	defaultNames  = []string{"compose.yaml", "compose.yml", "docker-compose.yml", "docker-compose.yaml"}
	overrideNames = []string{"compose.override.yml", "compose.override.yaml", "docker-compose.override.yml", "docker-compose.override.yaml"}
)

// Beside returns the paths of further files of the project, which need not exist: .env, and, for a compose file with a default
// name, the first existing override.
func Beside(name string) []string {
	if name == "-" {
		return nil
	}
	dir := filepath.Dir(name)
	paths := []string{filepath.Join(dir, envFile)}
	if !slices.Contains(defaultNames, filepath.Base(name)) {
		return paths
	}
	for _, override := range overrideNames {
		path := filepath.Join(dir, override)
		if _, err := os.Stat(path); err == nil {
			return append(paths, path)
		}
	}
	return paths
}

// readBeside reads a further file of the project.
func readBeside(path string) ([]byte, error) {
	text, err := files.ReadRegular(path, MaxBytes)
	if err != nil {
		return nil, fmt.Errorf("cannot read %s: %w", path, err)
	}
	return text, nil
}

// merge merges an override into f.
func (f *file) merge(over *file) {
	f.Name, f.Include = merged("name", f.Name, over.Name), merged("include", f.Include, over.Include)
	if f.Services == nil {
		f.Services = map[string]map[string]node{}
	}
	for name, s := range over.Services {
		f.Services[name] = merged(name, node{f.Services[name]}, node{s}).value.(map[string]node)
	}
}

// merged returns a value merged with its override: mappings are merged, profiles are appended, other values are replaced.
func merged(key string, n, over node) node {
	switch more := over.value.(type) {
	case nil:
		return n
	case map[string]node:
		fields, _ := n.value.(map[string]node)
		all := maps.Clone(fields)
		if all == nil {
			return over
		}
		for name, field := range more {
			all[name] = merged(name, all[name], field)
		}
		return node{all}
	case []node:
		if list, isList := n.value.([]node); isList && key == "profiles" {
			return node{slices.Concat(list, more)}
		}
	}
	return over
}
