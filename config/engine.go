package config

import (
	"errors"
	"fmt"
	"net"
	"net/netip"
	"reflect"
	"slices"
	"strconv"
	"strings"

	"github.com/sonde-probe/sonde/probe"
)

// engine decodes the engine block.
func (l *loader) engine() {
	b := l.only("engine")
	if b == nil {
		return
	}
	r := l.record(b, l.shapes.engine)
	e := &l.config.Engine
	l.fill(r, e)
	l.engineLimits(r)
	if r.values["listen"] != nil {
		l.listen(r, e.Listen)
	}
	if e.RestartBudget != nil {
		l.budget(r, e.RestartBudget)
	}
}

// fill sets a struct from a record, and reports what does not fit into it.
func (l *loader) fill(r *record, to any) {
	var wrong probe.FieldErrors
	fill(reflect.ValueOf(to).Elem(), r.values, l.context(), "", &wrong)
	for _, field := range wrong {
		l.add(l.fieldReport(r, field))
		r.ok = false
	}
}

func (l *loader) context() Context { return Context{Compatibility: l.config.Engine.Compatibility} }

func (l *loader) engineLimits(r *record) {
	if n, ok := r.values["concurrency"].(int64); ok && (n < 1 || n > MaxConcurrency) {
		l.refuse(r, "concurrency", fmt.Sprintf("must be from 1 to %d", MaxConcurrency))
	}
	if r.values["token_file"] == "" {
		l.refuse(r, "token_file", "must not be empty")
	}
}

func (l *loader) listen(r *record, address string) {
	if address == "" {
		return
	}
	host, port, err := net.SplitHostPort(address)
	_, portErr := strconv.ParseUint(port, 10, 16) // 0 is a port that the system chooses
	m := report{at: r.places["listen"].value, body: &r.block.Body}
	switch {
	case err != nil || portErr != nil:
		m.summary, m.hint = "listen must be an address and a port number", fmt.Sprintf("write listen = %q", DefaultListen)
	case !loopback(host) && !l.guarded():
		m.summary = "listen is open to other machines, and nothing asks callers who they are"
		m.hint = `add token_file = "…", or tls { … } with client_ca_file, or listen on 127.0.0.1`
	default:
		return
	}
	l.add(m)
}

func loopback(host string) bool {
	ip, err := netip.ParseAddr(host)
	return host == "localhost" || err == nil && ip.IsLoopback()
}

// guarded reports whether callers of the API have to say who they are.
func (l *loader) guarded() bool {
	e := l.config.Engine
	return e.TokenFile != "" || e.TLS != nil && e.TLS.ClientCAFile != ""
}

func (l *loader) budget(r *record, b *Budget) {
	_, per := r.values["restart_budget"].(Values)["per"]
	switch {
	case b.Max < 0:
		l.refuse(r, "restart_budget.max", "must be 1 or more")
	case b.Max == 0 && b.Share == 0 && r.ok:
		l.add(report{
			at: r.places["restart_budget"].value, body: &r.block.Body, summary: "restart_budget has neither max nor share",
			hint: `write restart_budget = { max = 3, per = "1m" }, or { share = "10%", per = "1m" }`,
		})
	}
	if per && b.Per <= 0 {
		l.refuse(r, "restart_budget.per", "must be more than 0")
	}
}

// refuse reports that a field's value cannot be used.
func (l *loader) refuse(r *record, path, problem string) {
	l.fieldError(r, &probe.FieldError{Field: path, Problem: problem})
}

// fieldError reports an error at the field it names, or at the block. It takes
// the errors of errors.Join apart.
func (l *loader) fieldError(r *record, err error) {
	if joined, ok := err.(interface{ Unwrap() []error }); ok {
		for _, one := range joined.Unwrap() {
			l.fieldError(r, one)
		}
		return
	}
	var field *probe.FieldError
	if !errors.As(err, &field) {
		l.add(report{at: r.block.Header, body: &r.block.Body, summary: l.unsecret(r, place{}, err.Error())})
		return
	}
	l.add(l.fieldReport(r, field))
}

// fieldReport returns what is to be reported about a field: at its value, or at the
// block it would be in.
func (l *loader) fieldReport(r *record, field *probe.FieldError) report {
	p, exact := r.at(field.Field)
	at := p.value
	if !exact {
		at = p.name
	}
	return report{at: at, body: &r.block.Body, summary: field.Field + " " + l.unsecret(r, p, field.Problem)}
}

// unsecret returns a problem's text, or another one when it may hold a value
// that must not be shown.
func (l *loader) unsecret(r *record, p place, problem string) string {
	if p.secret || containsAny(problem, r.secrets()) {
		return "is not valid; " + hidden
	}
	return problem
}

func containsAny(s string, parts []string) bool {
	return slices.ContainsFunc(parts, func(p string) bool { return strings.Contains(s, p) })
}
