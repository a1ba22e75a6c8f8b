package httpprobe

import (
	"fmt"
	"net/http"
	"slices"
	"strconv"
	"strings"

	"github.com/sonde-probe/sonde/probe"
)

// statusRange is a range of statuses, including both ends.
type statusRange struct{ from, to int }

// statuses are ranges of statuses, and their text for messages.
type statuses struct {
	ranges []statusRange
	text   string
}

// parseStatuses parses texts such as "204" and "200-399". The default is the kubelet's range.
func parseStatuses(texts []string) (statuses, error) {
	if texts != nil && len(texts) == 0 {
		return statuses{}, &probe.FieldError{Field: "status", Problem: "is empty: no status would be accepted", Hint: `leave it out for "200-399"`}
	}
	if len(texts) == 0 {
		texts = []string{"200-399"}
	}
	s := statuses{text: strings.Join(texts, ", ")}
	for _, text := range texts {
		r, ok := parseStatusRange(text)
		if !ok {
			return statuses{}, &probe.FieldError{
				Field: "status", Problem: fmt.Sprintf(`has %q; it must be a status such as "204" or a range such as "200-399", from 100 to 599`, text),
				Hint: statusHint(text),
			}
		}
		s.ranges = append(s.ranges, r)
	}
	return s, nil
}

// checkBody returns an error if an assertion needs a body, but only statuses are accepted whose responses have none: 204 and 304
// (RFC 9110, section 6.4.1).
func (s statuses) checkBody(c Config) error {
	mayHave := func(r statusRange) bool {
		return r.from != r.to || r.from != http.StatusNoContent && r.from != http.StatusNotModified
	}
	if len(s.ranges) == 0 || slices.ContainsFunc(s.ranges, mayHave) {
		return nil
	}
	name := ""
	switch {
	case c.BodyContains != "":
		name = "body_contains"
	case len(c.JSONEquals) > 0:
		name = "json_equals"
	case len(c.JSONRegex) > 0:
		name = "json_regex"
	case len(c.JSONMin) > 0:
		name = "json_min"
	case len(c.JSONMax) > 0:
		name = "json_max"
	default:
		return nil
	}
	return probe.FieldErrorf(name, "never holds, since a response with the status %s has no body", s.text)
}

// statusHint returns how to write a status in the notation of other tools, such as "2xx" or "200,204".
func statusHint(text string) string {
	if class, ok := strings.CutSuffix(strings.ToLower(text), "xx"); ok && len(class) == 1 && strings.Contains("12345", class) {
		return fmt.Sprintf(`write "%s00-%s99"`, class, class)
	}
	if low, high, ok := strings.Cut(text, "-"); ok && len(low) == len("100") {
		if _, isRange := parseStatusRange(high + "-" + low); isRange {
			return fmt.Sprintf(`the range is reversed: write "%s-%s"`, high, low)
		}
	}
	if strings.Contains(text, ",") {
		return `write each on its own: ["200", "204"]`
	}
	return ""
}

func parseStatusRange(text string) (statusRange, bool) {
	low, high, isRange := strings.Cut(text, "-")
	if !isRange {
		high = low
	}
	from, err := strconv.Atoi(strings.TrimSpace(low))
	if err != nil {
		return statusRange{}, false
	}
	to, err := strconv.Atoi(strings.TrimSpace(high))
	return statusRange{from, to}, err == nil && 100 <= from && from <= to && to <= 599
}

// has reports whether a status is accepted, and whether it is accepted by a range that starts at 300 or above, so that redirects
// are accepted explicitly.
func (s statuses) has(status int) (accepted, explicit bool) {
	for _, r := range s.ranges {
		if r.from <= status && status <= r.to {
			accepted = true
			explicit = explicit || r.from >= 300
		}
	}
	return accepted, explicit
}
