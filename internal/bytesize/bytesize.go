// Package bytesize formats and parses sizes in bytes, such as "32MiB".
package bytesize

import (
	"fmt"
	"math"
	"strconv"
	"strings"
)

// Size is a number of bytes. It is not negative.
type Size int64

// units are the units of a size, the largest first.
var units = [...]struct {
	name  string
	shift uint
}{{"GiB", 30}, {"MiB", 20}, {"KiB", 10}, {"B", 0}}

// String returns the exact size in the largest unit in which it is a whole number: "1536KiB".
func (s Size) String() string {
	for _, u := range units {
		if n := int64(s) >> u.shift; n != 0 && n<<u.shift == int64(s) {
			return strconv.FormatInt(n, 10) + u.name
		}
	}
	return "0B"
}

// Rounded returns the size in the largest unit, rounded to one decimal: "1.5 MiB".
func (s Size) Rounded() string {
	for _, u := range units[:len(units)-1] {
		if s>>u.shift != 0 {
			return fmt.Sprintf("%.1f %s", float64(s)/float64(int64(1)<<u.shift), u.name)
		}
	}
	return fmt.Sprintf("%d B", s)
}

// Parse parses a whole number and a unit.
func Parse(s string) (Size, bool) {
	for _, u := range units {
		digits, ok := strings.CutSuffix(s, u.name)
		if !ok {
			continue
		}
		n, err := strconv.ParseUint(strings.TrimSpace(digits), 10, 63)
		if err != nil || n > math.MaxInt64>>u.shift {
			return 0, false
		}
		return Size(n << u.shift), true
	}
	return 0, false
}

// Meant returns the size that a text such as "32M", "32mb" or "32 MB" probably means, in the syntax of Parse, or "".
func Meant(s string) string {
	unit := strings.ToLower(strings.TrimLeft(s, "0123456789 "))
	digits := strings.TrimSpace(s[:len(s)-len(unit)])
	for _, u := range units {
		for _, other := range []string{u.name, u.name[:1] + "B", u.name[:1], u.name[:1] + "i"} {
			if meant := digits + u.name; unit == strings.ToLower(other) && isSize(meant) {
				return meant
			}
		}
	}
	return ""
}

func isSize(s string) bool {
	_, ok := Parse(s)
	return ok
}
