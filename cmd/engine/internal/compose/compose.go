// Package compose converts the services of compose files to targets, as docker compose starts them: for sonde import, and for
// sonde run --compose.
//
//	compose.go     reads a project and writes its targets
//	file.go        reads and merges the files of a project
//	variables.go   ${NAME:-default}, and .env
//	service.go     the supported keys of a service
//	health.go      writes health checks as probes
package compose

import (
	"cmp"
	"errors"
	"fmt"
	"maps"
	"os"
	"path/filepath"
	"regexp"
	"slices"
	"strings"
	"time"

	"github.com/sonde-probe/sonde/config/document"
	"github.com/sonde-probe/sonde/probe"
)

// Limits of a project.
const (
	MaxBytes = 1 << 20 // of a file

	maxServices = 1000
	maxReplicas = 100
)

// project is a project that is being converted.
type project struct {
	name      string
	variables *variables
	services  map[string]service
	doc       *document.Document
	warnings  []string
	where     string // the place named in warnings
}

// Write converts a project to targets. It returns warnings about parts that are not converted, which are also written as
// comments. name is the path of the compose file; Write also reads the other files of the project, those that Beside returns.
// If name is "-", there are no other files. lookupEnv returns variables of the environment.
func Write(name string, text []byte, lookupEnv func(string) (string, bool)) (*document.Document, []string, error) {
	p := &project{doc: document.New(), where: name}
	if err := p.read(name, text, lookupEnv); err != nil {
		return nil, nil, fmt.Errorf("%s: %w", name, err)
	}
	for _, service := range slices.Sorted(maps.Keys(p.services)) {
		p.where = name + ": service " + service
		if err := p.write(service, p.services[service]); err != nil {
			return nil, nil, fmt.Errorf("%s: %w", p.where, err)
		}
	}
	return p.doc, p.warnings, nil
}

// warn writes a comment and adds it to the warnings.
func (p *project) warn(body *document.Body, format string, a ...any) {
	body.Comment(format, a...)
	p.warnings = append(p.warnings, p.where+": "+fmt.Sprintf(format, a...))
}

// read reads the files of the project.
func (p *project) read(name string, text []byte, lookupEnv func(string) (string, bool)) error {
	all, err := readFile(text)
	if err != nil {
		return err
	}
	read, env := []string{name}, []byte(nil)
	for _, path := range Beside(name) {
		more, err := readBeside(path)
		switch {
		case errors.Is(err, os.ErrNotExist):
			continue
		case err != nil:
			return err
		case filepath.Base(path) == envFile:
			env = more
		default:
			over, err := readFile(more)
			if err != nil {
				return fmt.Errorf("%s: %w", path, err)
			}
			all.merge(over)
		}
		read = append(read, filepath.Base(path))
	}
	if p.variables, err = newVariables(env, lookupEnv); err != nil {
		return fmt.Errorf("%s: %w", envFile, err)
	}
	if p.name, err = p.projectName(all, name); err != nil {
		return err
	}
	p.doc.Comment("Project %s, from %s.", p.name, strings.Join(read, ", "))
	return p.readServices(all)
}

// readServices reads the active services of the project.
func (p *project) readServices(all *file) error {
	if len(all.Services) > maxServices {
		return fmt.Errorf("it has %d services, at most %d are allowed", len(all.Services), maxServices)
	}
	if all.Include.value != nil {
		p.warn(&p.doc.Body, "Not read: include. %s", resolvedHint)
	}
	p.services = map[string]service{}
	var inactive []string
	for _, name := range slices.Sorted(maps.Keys(all.Services)) {
		if !serviceName.MatchString(name) {
			return fmt.Errorf("services has the name %q; letters, digits, . _ and - are allowed", name)
		}
		s, err := p.readService(all.Services[name])
		switch {
		case err != nil:
			return fmt.Errorf("service %s: %w", name, err)
		case p.isActive(s):
			p.services[name] = s
		default:
			inactive = append(inactive, name)
		}
	}
	if len(inactive) > 0 {
		p.doc.Comment("Left out, since none of their profiles is in COMPOSE_PROFILES: %s.", strings.Join(inactive, ", "))
	}
	p.leaveOutJobs()
	for _, warning := range p.variables.warnings {
		p.warn(&p.doc.Body, "%s", warning)
	}
	return nil
}

// leaveOutJobs removes services for whose completion other services wait.
func (p *project) leaveOutJobs() {
	var jobs []string
	for _, s := range p.services {
		for on, dependency := range s.DependsOn {
			if dependency.Condition == completed {
				jobs = append(jobs, on)
			}
		}
	}
	if slices.Sort(jobs); len(jobs) > 0 {
		p.doc.Comment("Left out, since others wait until they have completed: %s.", strings.Join(slices.Compact(jobs), ", "))
	}
	for _, job := range jobs {
		delete(p.services, job)
	}
}

// resolvedHint is the remedy for unsupported features.
const resolvedHint = "For a project with these, use the output of docker compose config."

var (
	serviceName = regexp.MustCompile(`^[a-zA-Z0-9._-]{1,200}$`) // as in the specification
	validName   = regexp.MustCompile(`^[a-z0-9][a-z0-9_-]{0,200}$`)
	noNameChar  = regexp.MustCompile(`[^a-z0-9_-]`)
)

// projectName returns the project's name as docker compose determines it: COMPOSE_PROJECT_NAME, the name in the file, or the
// name of the folder.
func (p *project) projectName(all *file, path string) (string, error) {
	name, _ := p.variables.lookup("COMPOSE_PROJECT_NAME")
	if given, _ := all.Name.value.(string); name == "" {
		value, err := p.variables.expand(given)
		if err != nil {
			return "", fmt.Errorf("name: %w", err)
		}
		name = value
	}
	if name != "" {
		if !validName.MatchString(name) {
			return "", fmt.Errorf("the project's name is %q; lower-case letters, digits, _ and - are allowed, and it begins with a letter or a digit", name)
		}
		return name, nil
	}
	folder, err := filepath.Abs(filepath.Dir(path))
	if err != nil {
		return "", err
	}
	name = strings.TrimLeft(noNameChar.ReplaceAllString(strings.ToLower(filepath.Base(folder)), ""), "_-")
	if !validName.MatchString(name) {
		return "", fmt.Errorf("the folder %s gives the project no name: write name at the top of the file, or set COMPOSE_PROJECT_NAME", folder)
	}
	return name, nil
}

// isActive reports whether a service has no profiles or an active profile.
func (p *project) isActive(s service) bool {
	if len(s.Profiles) == 0 {
		return true
	}
	value, _ := p.variables.lookup("COMPOSE_PROFILES")
	active := strings.Split(value, ",")
	return slices.Contains(active, "*") || slices.ContainsFunc(s.Profiles, func(profile string) bool { return slices.Contains(active, profile) })
}

// targets returns the names of a service's targets: one for each replica.
func (p *project) targets(name string, s service) (names []string) {
	target := p.name + "/" + name
	n := s.replicas()
	if n == 1 {
		return []string{target}
	}
	for i := range n {
		names = append(names, fmt.Sprintf("%s/%d", target, i+1))
	}
	return names
}

// write writes the targets of a service.
func (p *project) write(name string, s service) error {
	p.doc.Newline()
	n := s.replicas()
	switch {
	case n == 0:
		p.doc.Comment("Service %s has no containers.", name)
	case n < 0 || n > maxReplicas:
		return fmt.Errorf("it has %d containers, from 0 to %d are allowed", n, maxReplicas)
	}
	for i, target := range p.targets(name, s) {
		if i > 0 {
			p.doc.Newline()
		}
		labels := map[string]string{labelProject: p.name, labelService: name, labelOneoff: "False"}
		if n > 1 {
			labels[labelNumber] = fmt.Sprint(i + 1)
		}
		if err := p.target(p.doc.Block("target", target), s, labels); err != nil {
			return err
		}
	}
	return nil
}

// Labels of docker compose's containers. Containers of docker compose run have labelOneoff set to True.
const (
	labelProject = "com.docker.compose.project"
	labelService = "com.docker.compose.service"
	labelOneoff  = "com.docker.compose.oneoff"
	labelNumber  = "com.docker.compose.container-number"
)

// defaultGrace is docker compose's default grace period.
const defaultGrace = "10s"

// target writes one target.
func (p *project) target(body *document.Body, s service, labels map[string]string) error {
	body.BlockOf("container", document.Argument{Name: "match", Value: labels})
	grace, err := duration("stop_grace_period", cmp.Or(s.StopGracePeriod, defaultGrace))
	if err != nil {
		return err
	}
	body.Set("termination_grace_period", probe.FormatDuration(max(grace, time.Millisecond)))
	var on []string
	for _, dependency := range slices.Sorted(maps.Keys(s.DependsOn)) {
		if other, isTarget := p.services[dependency]; isTarget {
			on = append(on, p.targets(dependency, other)...)
		}
	}
	if len(on) > 0 {
		body.Set("depends_on", on)
	}
	if err := p.restartPolicy(body, s); err != nil {
		return err
	}
	if s.Extends != nil {
		p.warn(body, "Not read: extends. %s", resolvedHint)
	}
	return p.health(body, s.Health)
}

// restartPolicy writes whether Sonde restarts a container that its runtime does not restart.
func (p *project) restartPolicy(body *document.Body, s service) error {
	policy, isGiven, err := s.restart()
	switch {
	case err != nil:
		return err
	case policy != "no": // the runtime restarts it
	case !s.Health.hasProbes():
		body.Set("restart_policy", "never")
	case isGiven:
		p.warn(body, `A failing probe restarts nothing, as restart: "no" says.`)
		body.Set("restart_policy", "never")
	default:
		body.SetWithComment("restart_policy", "on_failure", "the compose file does not say")
	}
	return nil
}
