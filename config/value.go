package config

import (
	"fmt"
	"math"
	"math/big"
	"regexp"
	"slices"
	"strconv"
	"strings"
	"time"

	"github.com/hashicorp/hcl/v2"
	"github.com/hashicorp/hcl/v2/hclsyntax"
	"github.com/zclconf/go-cty/cty"
	"github.com/zclconf/go-cty/cty/convert"

	"github.com/sonde-probe/sonde/config/internal/tree"
	"github.com/sonde-probe/sonde/config/suggest"
	"github.com/sonde-probe/sonde/internal/bytesize"
	"github.com/sonde-probe/sonde/probe"
)

// value decodes an argument into the Go type that Values hold for its field: nil for null, which is the same as not set.
func (e *evaluator) value(b *tree.Body, f *Field, arg tree.Argument) (v any, secret, valid bool) {
	if f.Sensitive {
		e.noteSensitive(f, arg)
	}
	raw, ok := e.eval(b, arg.Expr)
	if !ok {
		return nil, false, false
	}
	e.conceal(raw, f.Sensitive)
	raw, secret = unmark(raw)
	if raw.IsNull() {
		return nil, secret, true
	}
	e.checkPushedPath(b, f, arg, raw)
	v, p := decode(raw, f.Type, arg.Name, secret || f.Sensitive)
	if word, ok := v.(string); ok && f.OneOf != nil && !slices.Contains(f.OneOf, word) {
		p = &valueError{summary: fmt.Sprintf("invalid %s %q", f.Name, word), hint: wordHint(word, f.OneOf)}
		if secret || f.Sensitive {
			p.summary, p.hint = f.Name+" is not valid", wordHint("", f.OneOf)+"; the value is not shown because it is sensitive"
		}
	}
	if p != nil {
		p.within(f)
		if f.NonZero && raw.Type() == cty.Number && raw.LessThanOrEqualTo(cty.Zero).True() {
			p.hint = fmt.Sprintf("write %s = %s", arg.Name, exampleOf(f.Type)) // 0 with a unit is not allowed either
		}
		e.add(report{at: p.at(arg.Expr), body: b, summary: p.summary, hint: p.hint})
		return nil, secret, false
	}
	return v, secret, true
}

// valueError is why a value does not fit a field.
type valueError struct {
	summary, hint string
	key           string // of the entry that is wrong, in a map
	meant         string // the duration or the size that the hint says to write; empty for none, or several
}

// within replaces a hint to write a value outside the limits of a field, which would be the next error.
func (f *valueError) within(field *Field) {
	parse := func(s string) int64 { n, _ := bytesize.Parse(s); return int64(n) }
	if field.Type == Duration {
		parse = func(s string) int64 { d, _ := ParseDuration(s); return int64(d) }
	}
	limit, bound := field.Max, "most"
	if field.Min != "" && f.meant != "" && parse(f.meant) < parse(field.Min) {
		limit, bound = field.Min, "least"
	} else if field.Max == "" || f.meant == "" || parse(f.meant) <= parse(field.Max) {
		return
	}
	f.hint = fmt.Sprintf("%s is at %s %s: write %s = %q", field.Name, bound, limit, field.Name, limit)
}

// wordHint returns which of the allowed words was meant, or all of them.
func wordHint(wrong string, words []string) string {
	if near := suggest.Nearest(wrong, words); near != "" {
		return fmt.Sprintf("did you mean %q?", near)
	}
	quoted := make([]string, len(words))
	for i, word := range words {
		quoted[i] = strconv.Quote(word)
	}
	last := len(quoted) - 1
	return "write " + strings.Join(quoted[:last], ", ") + " or " + quoted[last]
}

// at returns the range of the error in an argument.
func (f *valueError) at(e hcl.Expression) hcl.Range {
	if f.key == "" {
		return e.Range()
	}
	_, value := entryRanges(e, f.key)
	return value
}

// decode converts a value to the Go type that Values hold for a type.
func decode(v cty.Value, t Type, name string, secret bool) (any, *valueError) {
	switch t {
	case Duration:
		return decodeDuration(v, name, secret)
	case Size:
		return decodeSize(v, name, secret)
	case Int:
		return decodeInt(v, name)
	case Float:
		if n, err := convert.Convert(v, cty.Number); err == nil && !n.IsNull() {
			f, _ := n.AsBigFloat().Float64()
			return f, nil
		}
		return nil, mismatch(v, name, "a number", "")
	case Bool:
		if b, err := convert.Convert(v, cty.Bool); err == nil && !b.IsNull() {
			return b.True(), nil
		}
		return nil, mismatch(v, name, "true or false", boolHint(v, name))
	case Strings:
		return decodeStrings(v, name, secret)
	case StringMap:
		return decodeMap(v, mismatch(v, name, "a map of strings", fmt.Sprintf(`write %s = { name = "…" }`, name)), func(e cty.Value) (string, *valueError) {
			s, ok := text(e)
			if !ok {
				return "", &valueError{summary: fmt.Sprintf("%s must be a map of strings, one entry is %s", name, kindOf(e))}
			}
			return s, nil
		})
	case StringsMap:
		return decodeMap(v, mismatch(v, name, "a map of lists of strings", fmt.Sprintf(`write %s = { Name = "value" }`, name)), func(e cty.Value) ([]string, *valueError) {
			if s, ok := text(e); ok {
				return []string{s}, nil
			}
			list, p := decodeStrings(e, "each entry of "+name, secret)
			if p != nil {
				p.hint = ""
			}
			return list, p
		})
	}
	if s, ok := text(v); ok {
		return s, nil
	}
	return nil, mismatch(v, name, "a string", "")
}

// boolHint returns how to write what other formats take for true or false, or "".
func boolHint(v cty.Value, name string) string {
	word, _ := text(v)
	switch strings.ToLower(word) {
	case "yes", "on", "1", "enabled", "y", "t":
		return fmt.Sprintf("write %s = true", name)
	case "no", "off", "0", "disabled", "n", "f":
		return fmt.Sprintf("write %s = false", name)
	}
	return ""
}

// text returns a string, or a number or a bool converted to one.
func text(v cty.Value) (string, bool) {
	if n, ok := wholeNumber(v); ok {
		return strconv.FormatInt(n, 10), true
	}
	s, err := convert.Convert(v, cty.String)
	if err != nil || s.IsNull() {
		return "", false
	}
	return s.AsString(), true
}

// wholeNumber returns the value of a number if it is a whole one that has no sign, or is not
// 0. For other numbers cty needs some microseconds each, since they have 512 bits.
func wholeNumber(v cty.Value) (int64, bool) {
	if v.Type() != cty.Number || v.IsMarked() || !v.IsKnown() || v.IsNull() {
		return 0, false
	}
	f := v.AsBigFloat()
	n, accuracy := f.Int64()
	return n, accuracy == big.Exact && (n != 0 || !f.Signbit()) // cty writes -0
}

// templatePart is a part of a template. A whole number in it becomes the text that HCL makes
// of it.
type templatePart struct{ *hclsyntax.ParenthesesExpr }

// convertNumbers makes the templates in a body convert their numbers faster.
func convertNumbers(b *hclsyntax.Body) {
	hclsyntax.VisitAll(b, func(n hclsyntax.Node) hcl.Diagnostics {
		if template, ok := n.(*hclsyntax.TemplateExpr); ok {
			for i, part := range template.Parts {
				template.Parts[i] = newTemplatePart(part)
			}
		}
		return nil
	})
}

func newTemplatePart(e hclsyntax.Expression) hclsyntax.Expression {
	if _, literal := e.(*hclsyntax.LiteralValueExpr); literal {
		return e
	}
	return templatePart{&hclsyntax.ParenthesesExpr{Expression: e, SrcRange: e.Range()}}
}

// Value implements hcl.Expression.
func (p templatePart) Value(ctx *hcl.EvalContext) (cty.Value, hcl.Diagnostics) {
	v, diags := p.ParenthesesExpr.Value(ctx)
	if n, ok := wholeNumber(v); ok {
		v = cty.StringVal(strconv.FormatInt(n, 10))
	}
	return v, diags
}

// UnwrapExpression returns the expression of the part.
func (p templatePart) UnwrapExpression() hcl.Expression { return p.Expression }

func mismatch(v cty.Value, name, want, hint string) *valueError {
	return &valueError{summary: fmt.Sprintf("%s must be %s, not %s", name, want, kindOf(v)), hint: hint}
}

// kindOf returns the type of a value for messages.
func kindOf(v cty.Value) string {
	switch ty := v.Type(); {
	case v.IsNull():
		return "null"
	case ty == cty.String:
		return "a string"
	case ty == cty.Number:
		return "a number"
	case ty == cty.Bool:
		return "a bool"
	case ty.IsListType() || ty.IsTupleType():
		return "a list"
	case ty.IsSetType():
		return "a set"
	case ty.IsMapType():
		return "a map"
	case ty.IsObjectType():
		return "an object"
	}
	return "a value of another type"
}

func decodeDuration(v cty.Value, name string, secret bool) (any, *valueError) {
	if v.Type() == cty.Number {
		p := &valueError{summary: fmt.Sprintf("%s has no unit", name), hint: fmt.Sprintf(`write %s = "10s"`, name)}
		if n, ok := text(v); ok && !secret && len(n) < 10 {
			p.hint = secondsHint(name, n)
		}
		return nil, p
	}
	if v.Type() != cty.String {
		return nil, mismatch(v, name, "a duration", fmt.Sprintf(`write %s = "10s"`, name))
	}
	if d, ok := ParseDuration(v.AsString()); ok {
		return d, nil
	}
	p := &valueError{summary: fmt.Sprintf("%s is not a duration", name), hint: `write a number with a unit: "250ms", "5s", "1m" or "1h30m"`}
	if !secret {
		p.summary = fmt.Sprintf("%s is %.40q, which is not a duration", name, v.AsString())
		if isDigits(v.AsString()) {
			p.hint = secondsHint(name, v.AsString())
		} else if meant := meantDuration(v.AsString()); meant != "" {
			p.hint, p.meant = fmt.Sprintf("write %s = %q", name, meant), meant
		}
	}
	if plainDuration.MatchString(v.AsString()) {
		p = &valueError{summary: name + " is too long", hint: fmt.Sprintf("at most %s are allowed", probe.FormatDuration(probe.MaxDuration))}
		if !secret {
			p.summary = fmt.Sprintf("%s is %.40q, which is too long", name, v.AsString())
		}
	}
	return nil, p
}

// secondsHint returns how to write a number without a unit: most people mean seconds, and
// with large ones milliseconds.
func secondsHint(name, number string) string {
	if strings.HasSuffix(name, "validity") { // of a certificate
		return fmt.Sprintf(`write %s = "%sd" for days`, name, number)
	}
	const large = 4 // digits
	if isDigits(number) && len(number) >= large {
		return fmt.Sprintf(`write %s = "%sms" for milliseconds, or "%ss" for seconds`, name, number, number)
	}
	return fmt.Sprintf(`write %s = "%ss"`, name, number)
}

// days is a whole number of days, which Go does not know.
var days = regexp.MustCompile(`^([0-9]{1,4})d$`)

// ParseDuration parses a duration of Go, or of days: "14d".
func ParseDuration(s string) (time.Duration, bool) {
	if m := days.FindStringSubmatch(s); m != nil {
		n, err := strconv.Atoi(m[1])
		return time.Duration(n) * 24 * time.Hour, err == nil
	}
	d, err := time.ParseDuration(s)
	return d, err == nil
}

// plainDuration is a number with a unit that a duration can have.
var plainDuration = regexp.MustCompile(`^[0-9]+(ns|us|µs|ms|s|m|h)$`)

// wordyDuration is a number with a word as its unit: "5 minutes", "10 S", "1,5s".
var wordyDuration = regexp.MustCompile(`^([0-9]+(?:[.,][0-9]+)?) *([A-Za-z]*)$`)

// units are the units that people write, as Go writes them. Days and weeks are so many hours.
var units = map[string]string{
	"": "s", "s": "s", "sec": "s", "secs": "s", "second": "s", "seconds": "s",
	"ms": "ms", "msec": "ms", "msecs": "ms", "millis": "ms", "millisecond": "ms", "milliseconds": "ms",
	"us": "us", "usec": "us", "microseconds": "us", "ns": "ns",
	"m": "m", "min": "m", "mins": "m", "minute": "m", "minutes": "m",
	"h": "h", "hr": "h", "hrs": "h", "hour": "h", "hours": "h",
	"d": "24", "day": "24", "days": "24", "w": "168", "week": "168", "weeks": "168",
}

// meantDuration returns the duration that a text probably means, as it must be written, or
// "".
func meantDuration(s string) string {
	if joined := strings.ReplaceAll(s, " ", ""); joined != s {
		if _, err := time.ParseDuration(joined); err == nil {
			return joined
		}
	}
	m := wordyDuration.FindStringSubmatch(s)
	if m == nil {
		return ""
	}
	number, unit := strings.ReplaceAll(m[1], ",", "."), units[strings.ToLower(m[2])]
	if hours, err := strconv.Atoi(unit); err == nil {
		n, err := strconv.Atoi(number)
		if err != nil || n > 1000 {
			return ""
		}
		return fmt.Sprintf("%dh", n*hours)
	}
	if _, err := time.ParseDuration(number + unit); err != nil || unit == "" {
		return ""
	}
	return number + unit
}

func isDigits(s string) bool {
	return s != "" && len(s) < 10 && strings.Trim(s, "0123456789") == ""
}

func decodeSize(v cty.Value, name string, secret bool) (any, *valueError) {
	p := &valueError{summary: fmt.Sprintf("%s is not a size", name), hint: `write a whole number with a unit: "512B", "64KiB", "32MiB" or "1GiB"`}
	switch v.Type() {
	case cty.Number:
		p.summary = fmt.Sprintf("%s has no unit", name)
		if n, ok := text(v); ok && !secret && isDigits(n) {
			p.hint, p.meant = fmt.Sprintf(`write %s = "%sB" for bytes, or "%sMiB"`, name, n, n), n+"B"
		}
		return nil, p
	case cty.String:
	default:
		return nil, mismatch(v, name, "a size", p.hint)
	}
	given := v.AsString()
	if n, ok := bytesize.Parse(given); ok {
		return int64(n), nil
	}
	if secret {
		return nil, p
	}
	p.summary = fmt.Sprintf("%s is %.40q, which is not a size", name, given)
	if meant := bytesize.Meant(given); meant != "" {
		p.hint, p.meant = fmt.Sprintf("write %s = %q", name, meant), meant
	}
	return nil, p
}

func decodeInt(v cty.Value, name string) (any, *valueError) {
	n, err := convert.Convert(v, cty.Number)
	if err != nil || n.IsNull() {
		return nil, mismatch(v, name, "a whole number", "")
	}
	i, accuracy := n.AsBigFloat().Int64()
	switch {
	case !n.AsBigFloat().IsInt():
		return nil, &valueError{summary: fmt.Sprintf("%s must be a whole number", name)}
	case accuracy != big.Exact:
		return nil, &valueError{summary: fmt.Sprintf("%s is too large", name), hint: fmt.Sprintf("whole numbers are from %d to %d", math.MinInt64, math.MaxInt64)}
	}
	return i, nil
}

func decodeStrings(v cty.Value, name string, secret bool) ([]string, *valueError) {
	ty := v.Type()
	if !ty.IsListType() && !ty.IsTupleType() && !ty.IsSetType() {
		p := mismatch(v, name, "a list of strings", "")
		if s, ok := text(v); ok {
			p.hint = listHint(name, s, secret)
		} else if name == "match" && !secret {
			p.hint = matchHint(v)
		}
		return nil, p
	}
	out := make([]string, 0, v.LengthInt())
	for it := v.ElementIterator(); it.Next(); {
		_, e := it.Element()
		s, ok := text(e)
		if !ok {
			return nil, &valueError{summary: fmt.Sprintf("%s must be a list of strings, element %d is %s", name, len(out), kindOf(e))}
		}
		out = append(out, s)
	}
	return out, nil
}

// matchHint returns how to write the labels of a map as conditions, or "".
func matchHint(v cty.Value) string {
	if !v.CanIterateElements() {
		return ""
	}
	const most = 4
	var all []string
	for it := v.ElementIterator(); it.Next() && len(all) < most; {
		name, value := it.Element()
		if s, ok := text(value); ok && name.Type() == cty.String {
			all = append(all, quote(name.AsString()+"="+s))
		}
	}
	return fmt.Sprintf("write conditions on labels: match = [%s]", strings.Join(all, ", "))
}

// listHint returns how to write one text as a list. A command of several words becomes
// one string for each, or a call of a shell if it needs one.
func listHint(name, s string, secret bool) string {
	const most = 60
	switch {
	case secret || s == "" || len(s) > most:
		return fmt.Sprintf(`put it in brackets: %s = ["…"]`, name)
	case name == "command" && strings.ContainsAny(s, "|&;<>()$`*?~\"'\\\n"):
		return fmt.Sprintf(`there is no shell; to use one, write %s = ["/bin/sh", "-c", %s]`, name, quote(s))
	case name == "command":
		return fmt.Sprintf(`there is no shell, so each word is a string: write %s = ["%s"]`, name, strings.Join(strings.Fields(s), `", "`))
	}
	return fmt.Sprintf(`put it in brackets: %s = [%s]`, name, quote(s))
}

// quote returns a text as HCL has it in quotes.
func quote(s string) string {
	return strings.NewReplacer("${", "$${", "%{", "%%{").Replace(strconv.Quote(s))
}

// decodeMap decodes each entry of a map. NoMap is the error for any other value.
func decodeMap[T any](v cty.Value, noMap *valueError, decodeEntry func(cty.Value) (T, *valueError)) (any, *valueError) {
	if ty := v.Type(); !ty.IsMapType() && !ty.IsObjectType() {
		return nil, noMap
	}
	out := make(map[string]T, v.LengthInt())
	for it := v.ElementIterator(); it.Next(); {
		k, e := it.Element()
		one, p := decodeEntry(e)
		if p != nil {
			p.key = k.AsString()
			return nil, p
		}
		out[k.AsString()] = one
	}
	return out, nil
}
