package config

import (
	"fmt"
	"math"
	"strconv"
	"strings"

	"github.com/zclconf/go-cty/cty"
)

// Bytes is a number of bytes, written "32MiB".
type Bytes int64

// units are the units of a size, the largest first.
var units = [...]struct {
	name  string
	shift uint
}{{"GiB", 30}, {"MiB", 20}, {"KiB", 10}, {"B", 0}}

// String returns the size in the largest unit in which it is a whole number.
func (b Bytes) String() string {
	for _, u := range units {
		if n := int64(b) >> u.shift; n != 0 && n<<u.shift == int64(b) {
			return strconv.FormatInt(n, 10) + u.name
		}
	}
	return "0B"
}

// parseBytes parses a whole number and a unit.
func parseBytes(s string) (Bytes, bool) {
	for _, u := range units {
		digits, ok := strings.CutSuffix(s, u.name)
		if !ok {
			continue
		}
		n, err := strconv.ParseUint(strings.TrimSpace(digits), 10, 63)
		if err != nil || n > math.MaxInt64>>u.shift {
			return 0, false
		}
		return Bytes(n << u.shift), true
	}
	return 0, false
}

func decodeSize(v cty.Value, name string, secret bool) (any, *valueError) {
	p := &valueError{summary: fmt.Sprintf("%s is not a size", name), hint: `write a whole number with a unit: "512B", "64KiB", "32MiB" or "1GiB"`}
	switch v.Type() {
	case cty.Number:
		p.summary = fmt.Sprintf("%s has no unit", name)
		if n, ok := text(v); ok && !secret && isDigits(n) {
			p.hint = fmt.Sprintf(`write %s = "%sB" for bytes, or "%sMiB"`, name, n, n)
		}
		return nil, p
	case cty.String:
	default:
		p.summary = mismatch(v, name, "a size").summary
		return nil, p
	}
	given := v.AsString()
	if n, ok := parseBytes(given); ok {
		return int64(n), nil
	}
	if secret {
		return nil, p
	}
	p.summary = fmt.Sprintf("%s is %.40q, which is not a size", name, given)
	if meant := binary(given); meant != "" {
		p.hint = fmt.Sprintf("write %s = %q", name, meant)
	}
	return nil, p
}

// binary returns the size that "32M", "32mb" or "32 MB" is meant to be, or "".
func binary(s string) string {
	unit := strings.ToLower(strings.TrimLeft(s, "0123456789 "))
	digits := strings.TrimSpace(s[:len(s)-len(unit)])
	for _, u := range units {
		for _, short := range []string{u.name, u.name[:1] + "B", u.name[:1]} {
			if unit == strings.ToLower(short) && isDigits(digits) {
				return digits + u.name
			}
		}
	}
	return ""
}
