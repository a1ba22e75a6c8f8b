package cron

import (
	"fmt"
	"time"
)

// LocationHint is the hint for an error of Location.
const LocationHint = `write a name such as "Europe/Vienna"; the package tzdata has all of them`

// Location returns the time zone with a name, or that of this machine for "".
func Location(name string) (*time.Location, error) {
	if name == "" {
		return time.Local, nil
	}
	in, err := time.LoadLocation(name)
	if err != nil {
		return nil, fmt.Errorf("is %.80q, a time zone unknown on this machine", name)
	}
	return in, nil
}
