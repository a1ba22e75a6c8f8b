package process

import (
	"fmt"
	"maps"
	"strings"

	"github.com/sonde-probe/sonde/internal/files"
)

// maxEnvFile is the maximum size of a file of environment variables, in bytes.
const maxEnvFile = 64 << 10

// ReadEnvFile reads a file of environment variables, in lines NAME=value. Empty lines and lines that begin with # are
// ignored. Quotes around a whole value are removed; no other character in it is special. An error never contains any
// part of a value.
func ReadEnvFile(path string) (map[string]string, error) {
	text, err := files.ReadRegular(path, maxEnvFile)
	if err != nil {
		return nil, fmt.Errorf("env_file: %w", err)
	}
	env, number := map[string]string{}, 0
	for line := range strings.Lines(string(text)) {
		number++
		line = strings.TrimSpace(line)
		if line == "" || line[0] == '#' {
			continue
		}
		name, value, found := strings.Cut(line, "=")
		name = strings.TrimRight(name, " \t")
		switch {
		case !found || !isVariableName(name):
			return nil, fmt.Errorf("env_file: %s, line %d: want NAME=value without export; a name consists of letters, digits and _", path, number)
		case strings.Contains(value, "\x00"):
			return nil, fmt.Errorf("env_file: %s has a NUL byte in line %d", path, number)
		}
		env[name] = unquoted(strings.TrimSpace(value))
	}
	return env, nil
}

// isVariableName reports whether the name is valid for a shell variable.
func isVariableName(name string) bool {
	for i, c := range []byte(name) {
		letter := c == '_' || 'a' <= c && c <= 'z' || 'A' <= c && c <= 'Z'
		if !letter && (i == 0 || c < '0' || c > '9') {
			return false
		}
	}
	return name != ""
}

// unquoted returns a value without the quotes around it.
func unquoted(value string) string {
	if n := len(value); n >= 2 && (value[0] == '"' || value[0] == '\'') && value[n-1] == value[0] {
		return value[1 : n-1]
	}
	return value
}

// environment returns the variables of the command: those of EnvFile, overridden by Config.Env. It first passes the
// values of EnvFile to Config.Sensitive.
func (d *Driver) environment() (map[string]string, error) {
	if d.config.EnvFile == "" {
		return d.config.Env, nil
	}
	env, err := ReadEnvFile(d.config.EnvFile)
	if err != nil {
		return nil, err
	}
	var values []string
	for _, value := range env {
		values = append(values, value)
	}
	if d.config.Sensitive != nil {
		d.config.Sensitive(values)
	}
	maps.Copy(env, d.config.Env)
	return env, nil
}
