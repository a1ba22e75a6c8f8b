package httpprobe

import (
	"fmt"
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

// parseStatuses parses "204" and "200-399". The default is the kubelet's
// range.
func parseStatuses(texts []string) (statuses, error) {
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

// statusHint returns how to write a status of other tools: "2xx" and "200,204".
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

// has reports whether a status is accepted, and whether the range that accepts it
// starts at 300 or above, so that redirects are accepted explicitly.
func (s statuses) has(status int) (accepted, explicit bool) {
	for _, r := range s.ranges {
		if r.from <= status && status <= r.to {
			accepted = true
			explicit = explicit || r.from >= 300
		}
	}
	return accepted, explicit
}
