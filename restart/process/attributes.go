package process

import (
	"fmt"
	"maps"
	"slices"
	"strconv"
	"strings"

	"github.com/sonde-probe/sonde/internal/bytesize"
	"github.com/sonde-probe/sonde/probe"
	"github.com/sonde-probe/sonde/restart/process/internal/guard"
)

// Umask is a set of permissions that new files do not get. Its text form is an octal number: "0027".
type Umask struct {
	Set  bool // false: the umask of the engine applies
	Bits uint16
}

// MarshalText implements encoding.TextMarshaler. A Umask that is not set is empty.
func (u Umask) MarshalText() ([]byte, error) {
	if !u.Set {
		return nil, nil
	}
	return fmt.Appendf(nil, "%04o", u.Bits), nil
}

// UnmarshalText implements encoding.TextUnmarshaler. An error is a *probe.FieldError.
func (u *Umask) UnmarshalText(text []byte) error {
	bits, err := strconv.ParseUint(string(text), 8, 9)
	if err != nil || len(text) < 3 {
		return probe.FieldErrorf("umask", `is %q; write three octal digits, such as "027"`, text)
	}
	*u = Umask{Set: true, Bits: uint16(bits)}
	return nil
}

// mask returns the umask for a guard; nil means that of the engine.
func (u Umask) mask() *int {
	if !u.Set {
		return nil
	}
	bits := int(u.Bits)
	return &bits
}

// checkAttributes validates the nice value and the resource limits, and adds errors to wrong.
func (c Config) checkAttributes(wrong *probe.FieldErrors) {
	if c.Nice != nil && len(guard.Resources) == 0 {
		wrong.Add("nice", "needs Linux")
	}
	if len(c.Rlimits) > 0 && len(guard.Resources) == 0 {
		wrong.Add("rlimits", "needs Linux")
		return
	}
	for _, name := range slices.Sorted(maps.Keys(c.Rlimits)) {
		if _, err := parseRlimit(name, c.Rlimits[name]); err != nil {
			wrong.Add("rlimits", "%v", err)
		}
	}
}

// rlimits returns the limits for a guard, sorted by name. They must have passed checkAttributes.
func (c Config) rlimits() (limits []guard.Rlimit) {
	for _, name := range slices.Sorted(maps.Keys(c.Rlimits)) {
		if l, err := parseRlimit(name, c.Rlimits[name]); err == nil {
			limits = append(limits, l)
		}
	}
	return limits
}

// parseRlimit parses a limit: one value, or "soft:hard".
func parseRlimit(name, text string) (guard.Rlimit, error) {
	resource, known := guard.Resources[name]
	if !known {
		return guard.Rlimit{}, fmt.Errorf("has an unknown limit %q: write one of %s", name, strings.Join(slices.Sorted(maps.Keys(guard.Resources)), ", "))
	}
	soft, hard, both := strings.Cut(text, ":")
	if !both {
		hard = soft
	}
	l := guard.Rlimit{Name: name}
	for _, part := range []struct {
		to   *uint64
		text string
	}{{&l.Soft, soft}, {&l.Hard, hard}} {
		value, err := parseLimit(part.text, resource.Bytes)
		if err != nil {
			return guard.Rlimit{}, fmt.Errorf("has %s = %q; %w", name, text, err)
		}
		*part.to = value
	}
	if l.Soft > l.Hard {
		return guard.Rlimit{}, fmt.Errorf("has %s = %q, with a soft limit, before the colon, above the hard limit: write \"%s:%s\"", name, text, hard, soft)
	}
	return l, nil
}

// parseLimit parses a number, a size in bytes, or "unlimited". Its error suggests a valid value.
func parseLimit(text string, bytes bool) (uint64, error) {
	if text == "unlimited" {
		return guard.Unlimited, nil
	}
	if n, err := strconv.ParseUint(text, 10, 63); err == nil {
		return n, nil
	}
	if !bytes {
		return 0, fmt.Errorf(`write a number, "unlimited", or a soft and a hard limit such as "1024:4096"`)
	}
	if size, ok := bytesize.Parse(text); ok {
		return uint64(size), nil
	}
	if meant := bytesize.Meant(text); meant != "" {
		return 0, fmt.Errorf("write %q", meant)
	}
	return 0, fmt.Errorf(`write a size such as "64MiB", "unlimited", or a soft and a hard limit such as "64MiB:1GiB"`)
}
