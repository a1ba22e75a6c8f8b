package httpapi

import (
	"encoding"
	"fmt"
	"net/url"
	"strconv"

	"github.com/sonde-probe/sonde/engine"
	"github.com/sonde-probe/sonde/probe"
)

// DefaultListed is how many targets are listed unless more are asked for.
const DefaultListed = 1000

// Query says which targets to list. The zero Query asks for all, as far as
// DefaultListed goes.
type Query struct {
	Verdict string     // "passing", "failing" or "undecided": targets with such a probe; default: any
	Kind    probe.Kind // targets with a probe of this kind, and of Verdict; default: any
	After   string     // targets whose names come after this one; default: from the first
	Limit   int        // how many, 1 to MaxListed; default DefaultListed
	Probes  bool       // give each target's probes too
}

// values is the reverse of parseQuery.
func (q Query) values() url.Values {
	v := url.Values{}
	set := func(name, value string, given bool) {
		if given {
			v.Set(name, value)
		}
	}
	set("verdict", q.Verdict, q.Verdict != "")
	set("kind", q.Kind.String(), q.Kind != 0)
	set("after", q.After, q.After != "")
	set("limit", strconv.Itoa(q.Limit), q.Limit != 0)
	set("probes", "true", q.Probes)
	return v
}

// parseQuery reads the query of /v1/targets.
func parseQuery(v url.Values) (Query, error) {
	q := Query{Verdict: v.Get("verdict"), After: v.Get("after"), Limit: DefaultListed}
	if err := known(v, "verdict", "kind", "after", "limit", "probes"); err != nil {
		return q, err
	}
	if err := text(v, "verdict", new(probe.Verdict)); err != nil {
		return q, err
	}
	if err := text(v, "kind", &q.Kind); err != nil {
		return q, err
	}
	if s := v.Get("limit"); s != "" {
		n, err := strconv.Atoi(s)
		if err != nil || n < 1 || n > MaxListed {
			return q, fmt.Errorf("limit is %q, it must be from 1 to %d", s, MaxListed)
		}
		q.Limit = n
	}
	var err error
	q.Probes, err = flag(v, "probes")
	return q, err
}

// known refuses a query with other fields than these, or with a field twice: a
// typo must not show everything.
func known(v url.Values, fields ...string) error {
	given := 0
	for _, f := range fields {
		if len(v[f]) > 1 {
			return fmt.Errorf("%s is given %d times", f, len(v[f]))
		}
		if v.Has(f) {
			given++
		}
	}
	if given != len(v) {
		return fmt.Errorf("the query has an unknown field, known are %q", fields)
	}
	return nil
}

// text reads an enumeration that may be left out.
func text(v url.Values, field string, into encoding.TextUnmarshaler) error {
	if !v.Has(field) {
		return nil
	}
	if err := into.UnmarshalText([]byte(v.Get(field))); err != nil {
		return fmt.Errorf("the query is wrong: %w", err)
	}
	return nil
}

func flag(v url.Values, field string) (bool, error) {
	switch s := v.Get(field); {
	case !v.Has(field) || s == "false":
		return false, nil
	case s == "true":
		return true, nil
	default:
		return false, fmt.Errorf("%s is %q, it must be true or false", field, s)
	}
}

// matches reports whether t is asked for.
func (q Query) matches(t engine.TargetStatus) bool {
	if t.Target <= q.After && q.After != "" {
		return false
	}
	if q.Verdict == "" && q.Kind == 0 {
		return true
	}
	for _, p := range t.Probes {
		if (q.Kind == 0 || p.ID.Kind == q.Kind) && (q.Verdict == "" || p.Verdict.String() == q.Verdict) {
			return true
		}
	}
	return false
}
