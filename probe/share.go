package probe

import (
	"errors"
	"math"
	"strconv"
	"strings"
)

// Share is a fraction of a whole, greater than 0 and at most 1. Its text is a percentage: "10%".
type Share float64

// UnmarshalText implements encoding.TextUnmarshaler. It parses a percentage such as "10%".
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

// rounding is the tolerance for floating-point errors in the product of a share and a number: 29% of 100 is 29, and 10% of 30 is
// 3.
const rounding = 1e-9

// Of returns the share of n, rounded down.
func (s Share) Of(n int) int { return int(math.Floor(float64(s)*float64(n) + rounding)) }

// Minimum is a required number of members of a set, either absolute or as a share of the set. Its text is "2" or "50%". The zero
// Minimum is 1.
type Minimum struct {
	Count int   // at least 1; ignored if Share is set
	Share Share // if zero, Count applies
}

// maxMinimum bounds the number of a Minimum.
const maxMinimum = 1_000_000

// Of returns how many of n are required. A share is rounded up: 50% of 3 is 2. The result is at least 1, so an empty set never
// has enough.
func (m Minimum) Of(n int) int {
	if m.Share == 0 {
		return max(m.Count, 1)
	}
	return max(int(math.Ceil(float64(m.Share)*float64(n)-rounding)), 1)
}

// UnmarshalText implements encoding.TextUnmarshaler.
func (m *Minimum) UnmarshalText(b []byte) error {
	if strings.HasSuffix(string(b), "%") {
		m.Count = 0
		return m.Share.UnmarshalText(b)
	}
	n, err := strconv.Atoi(string(b))
	if err != nil || n < 1 || n > maxMinimum {
		return errors.New(`must be a whole number from 1, such as 2, or a percentage, written "50%"`)
	}
	*m = Minimum{Count: n}
	return nil
}

// String returns the number or the percentage, such as "2" or "50%".
func (m Minimum) String() string {
	if m.Share != 0 {
		return m.Share.String()
	}
	return strconv.Itoa(m.Of(0))
}
