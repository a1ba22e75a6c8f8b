package oracle

import (
	"fmt"
	"slices"
)

// smaller returns scripts that are slightly smaller than s.
func smaller(s *Script) []*Script {
	var all []*Script
	try := func(change func(*Script)) {
		c := s.clone()
		change(c)
		c.Name = fmt.Sprintf("%s-%d", s.Name, len(all))
		all = append(all, c)
	}
	for i, step := range s.Steps {
		if step.Do != Add && step.Do != Start {
			try(func(c *Script) { c.Steps = slices.Delete(c.Steps, i, i+1) })
		}
		for j, a := range step.Answers {
			if len(a.Letters) > 1 {
				try(func(c *Script) { c.Steps[i].Answers[j].Letters = a.Letters[1:] })
			}
			try(func(c *Script) { c.Steps[i].Answers = slices.Delete(c.Steps[i].Answers, j, j+1) })
		}
	}
	for _, container := range s.Containers {
		if s.regularWithout(container.Name) {
			try(func(c *Script) { c.drop(container.Name) })
		}
		for _, k := range container.Checks {
			if len(container.Checks) > 1 {
				try(func(c *Script) { c.dropCheck(container.Name, k) })
			}
		}
	}
	return all
}

// regularWithout reports whether the pod has a regular container other than name.
func (s *Script) regularWithout(name string) bool {
	return slices.ContainsFunc(s.Containers, func(c Container) bool { return !c.Sidecar && c.Name != name })
}

func (s *Script) clone() *Script {
	c := *s
	c.Containers = slices.Clone(s.Containers)
	for i := range c.Containers {
		c.Containers[i].Checks = slices.Clone(c.Containers[i].Checks)
	}
	c.Steps = slices.Clone(s.Steps)
	for i := range c.Steps {
		c.Steps[i].Answers = slices.Clone(c.Steps[i].Answers)
	}
	return &c
}

// drop removes a container with its steps and answers.
func (s *Script) drop(name string) {
	s.Containers = slices.DeleteFunc(s.Containers, func(c Container) bool { return c.Name == name })
	s.Steps = slices.DeleteFunc(s.Steps, func(step Step) bool { return step.Container == name })
	s.dropAnswers(func(a Answers) bool { return a.Container == name })
}

// dropCheck removes a probe with its answers.
func (s *Script) dropCheck(name string, k Check) {
	c := s.container(name)
	c.Checks = slices.DeleteFunc(c.Checks, func(o Check) bool { return o.Kind == k.Kind })
	s.dropAnswers(func(a Answers) bool { return a.Container == name && a.Kind == k.Kind })
}

func (s *Script) dropAnswers(which func(Answers) bool) {
	for i := range s.Steps {
		s.Steps[i].Answers = slices.DeleteFunc(s.Steps[i].Answers, which)
	}
}
