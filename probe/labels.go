package probe

import (
	"fmt"
	"maps"
	"slices"
	"strings"
	"unicode/utf8"
)

// Bounds on the labels of a target.
const (
	MaxLabels     = 32
	maxLabelName  = 63  // bytes
	maxLabelValue = 256 // bytes
)

// reservedLabels maps each label name that targets must not use to the reason.
var reservedLabels = map[string]string{
	"target":   "metrics use it for the target's name",
	"instance": "Prometheus sets it at each scrape",
	"job":      "Prometheus sets it at each scrape",
}

// CheckLabels validates the labels of a target. It returns a FieldError for the field "labels", or nil.
func CheckLabels(labels map[string]string) error {
	if len(labels) > MaxLabels {
		return FieldErrorf("labels", "has %d names; at most %d are allowed", len(labels), MaxLabels)
	}
	for _, name := range slices.Sorted(maps.Keys(labels)) {
		if err := CheckLabel(name, labels[name]); err != nil {
			return err
		}
	}
	return nil
}

// CheckLabel validates one label as CheckLabels does. A name must be a valid Prometheus label name, so that it is the same
// everywhere: a letter or underscore, then letters, digits and underscores.
func CheckLabel(name, value string) error {
	wrong := func(hint, problem string, a ...any) error {
		return &FieldError{Field: "labels", Problem: fmt.Sprintf(problem, a...), Hint: hint}
	}
	reserved, isReserved := reservedLabels[name]
	switch {
	case name == "":
		return wrong("", "has an empty name")
	case len(name) > maxLabelName:
		return wrong("", "has a name of %d bytes; at most %d are allowed", len(name), maxLabelName)
	case !isLabelName(name):
		return wrong(fmt.Sprintf("use letters, digits and underscores: %s", labelNameFor(name)), "has the invalid name %q", name)
	case strings.HasPrefix(name, "__"):
		return wrong(fmt.Sprintf("write %s", labelNameFor(strings.TrimLeft(name, "_"))), "has the name %q, which is reserved: Prometheus drops names that begin with two underscores", name)
	case isReserved:
		return wrong(fmt.Sprintf("use another name, such as service_%s", name), "has the name %q, which is reserved: %s", name, reserved)
	case len(value) > maxLabelValue:
		return wrong("", "has a value of %d bytes for %q; at most %d are allowed", len(value), name, maxLabelValue)
	case clean(value, false) != value || !utf8.ValidString(value):
		return wrong("", "has an invalid value for %q: it must be UTF-8 without control characters", name)
	}
	return nil
}

func isLabelName(s string) bool {
	for i, c := range []byte(s) {
		letter := c == '_' || 'a' <= c && c <= 'z' || 'A' <= c && c <= 'Z'
		if !letter && (i == 0 || c < '0' || c > '9') {
			return false
		}
	}
	return s != ""
}

// labelNameFor returns a valid label name similar to the invalid name s.
func labelNameFor(s string) string {
	name := strings.Map(func(r rune) rune {
		if r < utf8.RuneSelf && isLabelName("_"+string(r)) {
			return r
		}
		return '_'
	}, s)
	if name == "" || '0' <= name[0] && name[0] <= '9' {
		name = "_" + name
	}
	if strings.HasPrefix(name, "__") {
		name = "label" + name[1:]
	}
	return name
}
