package probe

import (
	"errors"
	"strconv"
	"strings"
)

// Share is a part of a whole, above 0 to 1. Its text is a percentage: "10%".
type Share float64

// UnmarshalText implements encoding.TextUnmarshaler. It reads a percentage such
// as "10%".
func (s *Share) UnmarshalText(b []byte) error {
	number, percent := strings.CutSuffix(string(b), "%")
	n, err := strconv.ParseFloat(number, 64)
	if err != nil || !percent || !(n > 0 && n <= 100) {
		return errors.New(`must be a percentage above 0% and up to 100%, written "10%"`)
	}
	*s = Share(n / 100)
	return nil
}

// String returns the percentage, such as "10%".
func (s Share) String() string { return strconv.FormatFloat(float64(s)*100, 'g', 6, 64) + "%" }
