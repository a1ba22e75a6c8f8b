package httpprobe

import (
	"bytes"
	"context"
	"encoding/json"
	"fmt"
	"maps"
	"regexp"
	"slices"
	"strconv"

	"github.com/sonde-probe/sonde/probe"
)

// measurement is a number to measure in the body, a JSON document.
type measurement struct {
	name string
	path []jsonStep
}

// maxMeasurements is the maximum number of measurements.
const maxMeasurements = 16

// measuredName is the syntax of a measurement's name, which may become part of a metric.
var measuredName = regexp.MustCompile(`^[a-z][a-z0-9_]{0,63}$`)

// measurements returns the configured measurements, sorted by name.
func (c Config) measurements() (all []measurement, err error) {
	if len(c.Measure) > maxMeasurements {
		return nil, probe.FieldErrorf("measure", "has %d numbers, at most %d are measured", len(c.Measure), maxMeasurements)
	}
	for _, name := range slices.Sorted(maps.Keys(c.Measure)) {
		path, problem := parseJSONPath(c.Measure[name])
		switch {
		case !measuredName.MatchString(name) || name == probe.RiseOfLatency:
			return nil, &probe.FieldError{Field: "measure", Problem: fmt.Sprintf("has the name %q", name), Hint: "write lower-case letters, digits and underscores, up to 64, and not latency: lag_seconds"}
		case problem != "":
			return nil, jsonPathError("measure", c.Measure[name], problem)
		}
		all = append(all, measurement{name, path})
	}
	return all, nil
}

// Measures reports whether attempts measure a number with that name.
func (h *handler) Measures(name string) bool {
	return slices.ContainsFunc(h.plan.asserts.measure, func(m measurement) bool { return m.name == name })
}

// recordNumbers records the measured numbers of a body in the attempt's probe.Trace. If a path leads to several numbers, the first
// one counts.
func (a *assertions) recordNumbers(ctx context.Context, body text) {
	found := map[string]float64{}
	for _, m := range a.measure {
		d := json.NewDecoder(bytes.NewReader(body.inUTF8))
		d.UseNumber()
		_, err := visitJSON(d, m.path, 0, func(v jsonValue) {
			if n, err := strconv.ParseFloat(v.text, 64); err == nil && v.number {
				if _, isKnown := found[m.name]; !isKnown {
					found[m.name] = n
				}
			}
		})
		if err != nil {
			return
		}
	}
	if len(found) > 0 {
		probe.RecordTrace(ctx, func(t *probe.Trace) { t.Measured = found })
	}
}
