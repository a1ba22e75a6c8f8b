package compose

import (
	"cmp"
	"encoding/json"
	"fmt"
	"math"
	"slices"
	"strings"
	"time"

	"github.com/sonde-probe/sonde/config/document"
	"github.com/sonde-probe/sonde/internal/command"
	"github.com/sonde-probe/sonde/probe"
)

// health is a health check. A nil *health means that the service has none.
type health struct {
	Test          test    `json:"test"`
	Interval      string  `json:"interval"`
	Timeout       string  `json:"timeout"`
	StartPeriod   string  `json:"start_period"`
	StartInterval string  `json:"start_interval"`
	Retries       *number `json:"retries"`
	Disable       string  `json:"disable"`
}

// test is the command of a health check, preceded by Docker's keyword, such as CMD.
type test []string

// UnmarshalJSON implements json.Unmarshaler.
func (t *test) UnmarshalJSON(text []byte) error {
	var shell string
	if json.Unmarshal(text, &shell) == nil && shell != "" {
		*t = test{"CMD-SHELL", shell}
		return nil
	}
	if err := json.Unmarshal(text, (*[]string)(t)); err != nil {
		return fmt.Errorf("test must be a command as text, or a list that begins with CMD, CMD-SHELL or NONE")
	}
	return nil
}

// hasProbes reports whether the health check is converted to probes.
func (h *health) hasProbes() bool {
	return h != nil && len(h.Test) > 0 && !h.isDisabled()
}

func (h *health) isDisabled() bool {
	return slices.Contains([]string{"true", "yes", "on", "y"}, strings.ToLower(h.Disable)) || len(h.Test) > 0 && h.Test[0] == "NONE"
}

// Docker's defaults.
const (
	defaultInterval      = 30 * time.Second
	defaultTimeout       = 30 * time.Second
	defaultStartInterval = 5 * time.Second
	defaultRetries       = 3
)

// health writes a health check as a startup and a liveness probe.
func (p *project) health(body *document.Body, h *health) error {
	switch {
	case h == nil:
		body.Comment("No health check. If the image has one, docker inspect shows it: write it as a probe.")
		return nil
	case h.isDisabled():
		body.Comment("The health check is disabled.")
		return nil
	case len(h.Test) == 0:
		p.warn(body, "Not converted: a healthcheck without test. The command is that of the image: write it as a probe.")
		return nil
	}
	words, err := h.Test.command()
	if err != nil {
		return fmt.Errorf("healthcheck.test %w", err)
	}
	t, err := h.times()
	if err != nil {
		return fmt.Errorf("healthcheck: %w", err)
	}
	t.write(body, "startup", words, t.startInterval, t.startFailures())
	t.write(body, "liveness", words, t.interval, t.retries)
	return nil
}

// command returns the command as words.
func (t test) command() (words []string, err error) {
	for _, w := range t[1:] {
		words = append(words, command.Escape(w, func(string) bool { return false })) // the target has no variables
	}
	switch {
	case t[0] == "CMD" && len(words) > 0 && words[0] != "":
		return words, nil
	case t[0] == "CMD-SHELL" && len(words) == 1 && words[0] != "":
		return []string{"/bin/sh", "-c", words[0]}, nil
	case t[0] == "CMD", t[0] == "CMD-SHELL":
		return nil, fmt.Errorf("has no command after %s, or several", t[0])
	}
	return nil, fmt.Errorf("begins with %.40q; it must begin with CMD, CMD-SHELL or NONE", t[0])
}

// times are the durations and the number of retries of a health check.
type times struct {
	interval, timeout, startPeriod, startInterval time.Duration
	retries                                       int
}

// times returns the durations and retries, with defaults applied.
func (h *health) times() (t times, err error) {
	for _, f := range []struct {
		name   string
		text   string
		to     *time.Duration
		normal time.Duration
	}{
		{"interval", h.Interval, &t.interval, defaultInterval},
		{"timeout", h.Timeout, &t.timeout, defaultTimeout},
		{"start_period", h.StartPeriod, &t.startPeriod, 0},
		{"start_interval", h.StartInterval, &t.startInterval, defaultStartInterval},
	} {
		if f.text != "" {
			if *f.to, err = duration(f.name, f.text); err != nil {
				return t, err
			}
		}
		*f.to = cmp.Or(*f.to, f.normal)
	}
	if t.startPeriod == 0 {
		t.startInterval = t.interval // Docker uses start_interval only during the start period
	}
	if h.Retries != nil {
		t.retries = int(*h.Retries)
	}
	if t.retries < 0 {
		return t, fmt.Errorf("retries is %d; it must not be negative", t.retries)
	}
	t.retries = cmp.Or(t.retries, defaultRetries)
	return t, nil
}

// startFailures returns the number of startup probe failures after which Docker considers the container unhealthy in any case:
// when the start period and all retries are over. One failure is added because the first attempt of a probe is immediate, while
// Docker first waits an interval.
func (t times) startFailures() int {
	until := float64(t.startPeriod) + float64(t.retries)*float64(t.interval)
	return int(min(math.Ceil(until/float64(t.startInterval)), maxFailures)) + 1
}

// maxFailures limits failure thresholds, at a value that is never reached.
const maxFailures = 1 << 30

// write writes one probe.
func (t times) write(body *document.Body, kind string, words []string, period time.Duration, failures int) {
	body.Newline()
	b := body.Block("probe", kind)
	b.BlockOf("exec", document.Argument{Name: "command", Value: words})
	b.Set("period", probe.FormatDuration(period))
	b.Set("timeout", probe.FormatDuration(t.timeout))
	b.Set("failure_threshold", failures)
}
