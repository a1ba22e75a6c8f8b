package consul

import (
	"net/url"
	"time"
)

// ParseQuery is for tests.
func ParseQuery(values url.Values) (index uint64, wait time.Duration, err error) {
	q, err := parseQuery(values)
	return q.index, q.wait, err
}

// The bounds are for tests.
const (
	MaxWait    = maxWait
	MaxWaiters = maxWaiters
)
