package oracle

import (
	"fmt"
	"strconv"
	"strings"

	"github.com/sonde-probe/sonde/probe"
)

// String returns the script in the format of Parse.
func (s *Script) String() string {
	var b strings.Builder
	fmt.Fprintf(&b, "pod %s", s.Policy)
	if s.Deleting {
		b.WriteString(" deleting")
	}
	b.WriteByte('\n')
	for _, c := range s.Containers {
		b.WriteString("container " + c.Name)
		if c.Sidecar {
			b.WriteString(" sidecar")
		}
		b.WriteByte('\n')
		for _, k := range c.Checks {
			fmt.Fprintf(&b, "  %v %s delay=%d period=%d timeout=%d success=%d failure=%d\n",
				k.Kind, k.Via, k.Delay, k.Period, k.Timeout, k.Success, k.Failure)
		}
	}
	for _, step := range s.Steps {
		b.WriteString(step.String() + "\n")
	}
	return b.String()
}

// String returns the step in the format of Parse.
func (s Step) String() string {
	text := string(s.Do)
	if s.Container != "" {
		text += " " + s.Container
	}
	switch s.Do {
	case Exit:
		text += " " + strconv.Itoa(s.Exit)
	case Answer:
		for _, a := range s.Answers {
			text += " " + a.String()
		}
	}
	return text
}

// String returns "web/readiness=SSF".
func (a Answers) String() string {
	return a.Container + "/" + a.Kind.String() + "=" + a.Letters
}

// Parse parses a script. Empty lines and lines that start with # are skipped.
func Parse(name, text string) (*Script, error) {
	s := &Script{Name: name}
	for n, line := range strings.Split(text, "\n") {
		if fields := strings.Fields(line); len(fields) > 0 && !strings.HasPrefix(fields[0], "#") {
			if err := s.parse(fields); err != nil {
				return nil, fmt.Errorf("%s:%d: %w", name, n+1, err)
			}
		}
	}
	return s, nil
}

func (s *Script) parse(fields []string) error {
	var kind probe.Kind
	switch {
	case fields[0] == "pod" && len(fields) > 1:
		s.Policy, s.Deleting = fields[1], len(fields) > 2 && fields[2] == "deleting"
	case fields[0] == "container" && len(fields) > 1:
		s.Containers = append(s.Containers, Container{Name: fields[1], Sidecar: len(fields) > 2 && fields[2] == "sidecar"})
	case kind.UnmarshalText([]byte(fields[0])) == nil && len(s.Containers) > 0:
		return s.parseCheck(kind, fields[1:])
	default:
		return s.parseStep(fields)
	}
	return nil
}

func (s *Script) parseCheck(kind probe.Kind, fields []string) error {
	if len(fields) == 0 {
		return fmt.Errorf("the %v probe has no handler", kind)
	}
	k := Check{Kind: kind, Via: Via(fields[0]), Period: 1, Timeout: 1, Success: 1, Failure: 3}
	numbers := map[string]*int{
		"delay": &k.Delay, "period": &k.Period, "timeout": &k.Timeout, "success": &k.Success, "failure": &k.Failure,
	}
	for _, field := range fields[1:] {
		name, value, _ := strings.Cut(field, "=")
		n, err := strconv.Atoi(value)
		if numbers[name] == nil || err != nil {
			return fmt.Errorf("%q is no number of a probe", field)
		}
		*numbers[name] = n
	}
	c := &s.Containers[len(s.Containers)-1]
	c.Checks = append(c.Checks, k)
	return nil
}

func (s *Script) parseStep(fields []string) error {
	step := Step{Do: Verb(fields[0])}
	switch step.Do {
	case Add, Sync, Terminate, Succeed, Remove, Cleanup:
	case Wait, Start, Stall, Resume, Lose, Exit:
		if len(fields) < 2 || s.container(fields[1]) == nil {
			return fmt.Errorf("%s needs a container", step.Do)
		}
		step.Container = fields[1]
	case Answer:
		return s.parseAnswers(fields[1:])
	default:
		return fmt.Errorf("%q is no step", fields[0])
	}
	if step.Do == Exit {
		var err error
		if step.Exit, err = strconv.Atoi(fields[len(fields)-1]); err != nil {
			return fmt.Errorf("exit needs a code: %w", err)
		}
	}
	s.Steps = append(s.Steps, step)
	return nil
}

func (s *Script) parseAnswers(fields []string) error {
	step := Step{Do: Answer}
	for _, field := range fields {
		path, letters, _ := strings.Cut(field, "=")
		name, kind, _ := strings.Cut(path, "/")
		a := Answers{Container: name, Letters: letters}
		if err := a.Kind.UnmarshalText([]byte(kind)); err != nil {
			return err
		}
		if c := s.container(name); c == nil || c.check(a.Kind) == nil {
			return fmt.Errorf("there is no probe %s", path)
		}
		step.Answers = append(step.Answers, a)
	}
	s.Steps = append(s.Steps, step)
	return nil
}
