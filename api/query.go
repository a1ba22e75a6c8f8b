package api

import (
	"encoding"
	"errors"
	"fmt"
	"net/http"
	"net/url"
	"slices"
	"strconv"
	"strings"

	"github.com/sonde-probe/sonde/engine"
	"github.com/sonde-probe/sonde/probe"
)

// defaultListed is the default of Query.Limit.
const defaultListed = 1000

// Query selects the targets of a list. The zero Query selects the first 1000 targets.
type Query struct {
	Verdict string     // "passing", "failing" or "undecided": targets with a probe of this verdict; default: any
	Kind    probe.Kind // targets with a probe of this kind and, if Verdict is set, with this verdict; default: any
	State   string     // a probe.TargetState, or several separated by commas: targets in one of these states; default: any
	Trouble bool       // only targets in trouble
	Sort    string     // "name", or "trouble": targets in trouble first, the worst state first; default "name"
	After   string     // Targets.Next of the previous page; sorted by name, it is the name of a target; default: start with the first
	Limit   int        // maximum number of targets, 1 to MaxListed; default 1000
	Probes  bool       // include each target's probes
	Groups  bool       // include the groups of each target
	Group   string     // members of a group; default: any
	Names   []string   // targets with one of these names, in which * and ? are wildcards; default: any
	Labels  []string   // targets whose labels match all of these: "team=shop", "team!=shop"; default: any

	selectors []probe.Selector // of Names and Labels, and of Group; set by the server
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
	set("state", q.State, q.State != "")
	set("trouble", "true", q.Trouble)
	set("sort", q.Sort, q.Sort != "")
	set("after", q.After, q.After != "")
	set("limit", strconv.Itoa(q.Limit), q.Limit != 0)
	set("probes", "true", q.Probes)
	set("groups", "true", q.Groups)
	set("group", q.Group, q.Group != "")
	for _, name := range q.Names {
		v.Add("name", name)
	}
	for _, label := range q.Labels {
		v.Add("label", label)
	}
	return v
}

// parseQuery reads the query of /v1/targets.
func parseQuery(query string) (q Query, err error) {
	v, err := parseFields(query, "verdict", "kind", "state", "trouble", "sort", "after", "limit", "probes", "groups", "group", "name", "label")
	if err != nil {
		return q, err
	}
	q = Query{
		Verdict: v.Get("verdict"), State: v.Get("state"), Sort: v.Get("sort"), After: v.Get("after"), Limit: defaultListed,
		Group: v.Get("group"), Names: v["name"], Labels: v["label"],
	}
	selector, err := parseSelector(v)
	if err != nil {
		return q, err
	}
	if !selector.SelectsAll() {
		q.selectors = append(q.selectors, selector)
	}
	err = errors.Join(parseText(v, "verdict", new(probe.Verdict)), parseText(v, "kind", &q.Kind))
	for state := range strings.SplitSeq(q.State, ",") {
		if v.Has("state") {
			err = errors.Join(err, parseText(url.Values{"state": {state}}, "state", new(probe.TargetState)))
		}
	}
	if err != nil {
		return q, err
	}
	if q.Sort != "" && q.Sort != "name" && q.Sort != sortTrouble {
		return q, fmt.Errorf("sort is %q: it must be name or trouble", q.Sort)
	}
	if q.Trouble, err = parseFlag(v, "trouble"); err != nil {
		return q, err
	}
	if s := v.Get("limit"); s != "" {
		n, err := strconv.Atoi(s)
		if err != nil || n < 1 || n > MaxListed {
			return q, fmt.Errorf("limit is %q: it must be from 1 to %d", s, MaxListed)
		}
		q.Limit = n
	}
	if q.Groups, err = parseFlag(v, "groups"); err != nil {
		return q, err
	}
	q.Probes, err = parseFlag(v, "probes")
	return q, err
}

// repeatable are the query fields that may be given several times.
var repeatable = []string{"name", "label", "config"}

// parseFields parses a query. An unknown or repeated field is an error: a query with a misspelled filter would match
// everything.
func parseFields(query string, fields ...string) (url.Values, error) {
	v, err := url.ParseQuery(query)
	if err != nil {
		return nil, fmt.Errorf("invalid query: %w", err)
	}
	given := 0
	for _, f := range fields {
		if len(v[f]) > 1 && !slices.Contains(repeatable, f) {
			return nil, fmt.Errorf("query field %s is given %d times", f, len(v[f]))
		}
		if v.Has(f) {
			given++
		}
	}
	if len(fields) == 0 && len(v) > 0 {
		return nil, errors.New("unknown query field: this path has none")
	}
	if given != len(v) {
		return nil, fmt.Errorf("unknown query field: use %s", strings.Join(fields, ", "))
	}
	return v, nil
}

// plain wraps the answer to requests without a query, and rejects a query, which would select nothing.
func plain(a answer) answer {
	return func(w http.ResponseWriter, r *http.Request) (any, error) {
		if _, err := parseFields(r.URL.RawQuery); err != nil {
			return nil, err
		}
		return a(w, r)
	}
}

// parseText parses an optional field with an enumerated value.
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

// sortTrouble is the Query.Sort that puts targets in trouble first.
const sortTrouble = "trouble"

// filter returns the filter of all targets that the query selects, ignoring After.
func (q Query) filter() (f engine.Filter) {
	if q.State != "" || q.Trouble {
		states := strings.Split(q.State, ",")
		f.State = func(s probe.TargetState) bool {
			return (q.State == "" || slices.Contains(states, s.String())) && (!q.Trouble || s.InTrouble())
		}
	}
	if q.Verdict != "" || q.Kind != 0 {
		f.Match = func(k probe.Kind, v probe.Verdict) bool {
			return (q.Kind == 0 || k == q.Kind) && (q.Verdict == "" || v.String() == q.Verdict)
		}
	}
	f.Selectors = q.selectors
	return f
}

// parseSelector returns the Selector of the fields name and label.
func parseSelector(v url.Values) (probe.Selector, error) {
	s, err := probe.NewSelector(v["name"], v["label"])
	if err != nil {
		return s, fmt.Errorf("invalid query: %w", err)
	}
	return s, nil
}

// A cursor is a parsed Query.After: the position from which a list continues. Sorted by trouble, the text is the state,
// or nothing for all states that are not trouble, a colon, and the name of the last target.
type cursor struct {
	state probe.TargetState // 0: not a state of trouble, or sorted by name
	name  string
}

func (q Query) cursor() (c cursor) {
	if q.Sort != sortTrouble {
		return cursor{name: q.After}
	}
	if q.After == "" {
		return cursor{state: probe.StateCannotStart}
	}
	state, name, _ := strings.Cut(q.After, ":")
	if c.state.UnmarshalText([]byte(state)) != nil || !c.state.InTrouble() {
		c.state = 0
	}
	c.name = name
	return c
}

// part is a part of a list that is sorted by name.
type part struct {
	filter engine.Filter
	prefix string // of a Query.After within this part, before the name of a target
}

// parts returns the parts of the list in order, starting at the cursor.
func (q Query) parts() (parts []part) {
	c, all := q.cursor(), q.filter()
	if q.Sort != sortTrouble {
		all.After = c.name
		return append(parts, part{filter: all})
	}
	add := func(prefix string, in func(probe.TargetState) bool) {
		f := all
		f.After, c.name = c.name, ""
		f.State = func(s probe.TargetState) bool { return in(s) && (all.State == nil || all.State(s)) }
		parts = append(parts, part{f, prefix})
	}
	for state := c.state; state > 0 && state < probe.TargetState(probe.TargetStates); state++ {
		if state.InTrouble() {
			add(state.String()+":", func(s probe.TargetState) bool { return s == state })
		}
	}
	if !q.Trouble {
		add(":", func(s probe.TargetState) bool { return !s.InTrouble() })
	}
	return parts
}
