package httpapi

import (
	"encoding"
	"fmt"
	"net/url"
	"strconv"
	"strings"

	"github.com/sonde-probe/sonde/engine"
	"github.com/sonde-probe/sonde/probe"
)

// DefaultListed is the default of Query.Limit.
const DefaultListed = 1000

// Query selects the targets of a list. The zero Query selects the first
// DefaultListed targets.
type Query struct {
	Verdict string     // "passing", "failing" or "undecided": targets with a probe of this verdict; default: any
	Kind    probe.Kind // targets with a probe of this kind, which has Verdict if that is set; default: any
	After   string     // targets whose names sort after this one; default: from the first
	Limit   int        // number of targets at most, 1 to MaxListed; default DefaultListed
	Probes  bool       // with each target's probes
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
func parseQuery(query string) (q Query, err error) {
	v, err := parseFields(query, "verdict", "kind", "after", "limit", "probes")
	if err != nil {
		return q, err
	}
	q = Query{Verdict: v.Get("verdict"), After: v.Get("after"), Limit: DefaultListed}
	if err := parseText(v, "verdict", new(probe.Verdict)); err != nil {
		return q, err
	}
	if err := parseText(v, "kind", &q.Kind); err != nil {
		return q, err
	}
	if s := v.Get("limit"); s != "" {
		n, err := strconv.Atoi(s)
		if err != nil || n < 1 || n > MaxListed {
			return q, fmt.Errorf("limit is %q: it must be from 1 to %d", s, MaxListed)
		}
		q.Limit = n
	}
	q.Probes, err = parseFlag(v, "probes")
	return q, err
}

// parseFields parses a query. An unknown or repeated field is an error: with a typo in
// a filter the query would match everything.
func parseFields(query string, fields ...string) (url.Values, error) {
	v, err := url.ParseQuery(query)
	if err != nil {
		return nil, fmt.Errorf("invalid query: %w", err)
	}
	given := 0
	for _, f := range fields {
		if len(v[f]) > 1 {
			return nil, fmt.Errorf("query field %s is given %d times", f, len(v[f]))
		}
		if v.Has(f) {
			given++
		}
	}
	if given != len(v) {
		return nil, fmt.Errorf("unknown query field: use %s", strings.Join(fields, ", "))
	}
	return v, nil
}

// parseText parses an optional enumeration.
func parseText(v url.Values, field string, into encoding.TextUnmarshaler) error {
	if !v.Has(field) {
		return nil
	}
	if err := into.UnmarshalText([]byte(v.Get(field))); err != nil {
		return fmt.Errorf("invalid query: %w", err)
	}
	return nil
}

func parseFlag(v url.Values, field string) (bool, error) {
	switch s := v.Get(field); {
	case !v.Has(field) || s == "false":
		return false, nil
	case s == "true":
		return true, nil
	default:
		return false, fmt.Errorf("%s is %q: it must be true or false", field, s)
	}
}

// filter returns the targets that the query selects.
func (q Query) filter() engine.Filter {
	f := engine.Filter{After: q.After}
	if q.Verdict != "" || q.Kind != 0 {
		f.Match = func(k probe.Kind, v probe.Verdict) bool {
			return (q.Kind == 0 || k == q.Kind) && (q.Verdict == "" || v.String() == q.Verdict)
		}
	}
	return f
}
