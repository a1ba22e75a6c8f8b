package config

import (
	"fmt"
	"math"
	"math/big"
	"slices"
	"strconv"
	"strings"
	"time"

	"github.com/hashicorp/hcl/v2"
	"github.com/zclconf/go-cty/cty"
	"github.com/zclconf/go-cty/cty/convert"

	"github.com/sonde-probe/sonde/config/internal/tree"
	"github.com/sonde-probe/sonde/config/suggest"
	"github.com/sonde-probe/sonde/internal/bytesize"
)

// state is the result of decoding an argument.
type state uint8

const (
	wrong state = iota // an error was reported
	null               // the same as not set
	given
)

// value decodes an argument into the Go type that Values hold for its field.
func (l *loader) value(b *tree.Body, f *Field, arg tree.Argument) (v any, secret bool, s state) {
	if f.Sensitive {
		l.secret(arg.Expr.Range())
	}
	raw, ok := l.eval(b, arg.Expr)
	if !ok {
		return nil, false, wrong
	}
	raw, secret = unmark(raw)
	if raw.IsNull() {
		return nil, secret, null
	}
	v, p := decode(raw, f.Type, arg.Name, secret || f.Sensitive)
	if word, ok := v.(string); ok && f.OneOf != nil && !slices.Contains(f.OneOf, word) {
		p = &valueError{summary: fmt.Sprintf("invalid %s %q", f.Name, word), hint: wordHint(word, f.OneOf)}
		if secret || f.Sensitive {
			p.summary, p.hint = f.Name+" is not valid", wordHint("", f.OneOf)+"; the value is not shown because it is sensitive"
		}
	}
	if p != nil {
		if f.NonZero && raw.Type() == cty.Number && raw.LessThanOrEqualTo(cty.Zero).True() {
			p.hint = fmt.Sprintf("write %s = %s", arg.Name, exampleOf(f.Type)) // 0 with a unit is not allowed either
		}
		l.add(report{at: p.at(arg.Expr), body: b, summary: p.summary, hint: p.hint})
		return nil, secret, wrong
	}
	return v, secret, given
}

// valueError is why a value does not fit a field.
type valueError struct {
	summary, hint string
	key           string // of the entry that is wrong, in a map
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
	return entryRange(e, f.key)
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
		return nil, mismatch(v, name, "true or false", "")
	case Strings:
		return decodeStrings(v, name)
	case StringMap:
		return decodeMap(v, mismatch(v, name, "a map of strings", fmt.Sprintf(`write %s = { name = "…" }`, name)), func(e cty.Value) (string, *valueError) {
			s, ok := text(e)
			if !ok {
				return "", &valueError{summary: fmt.Sprintf("%s must be a map of strings, one entry is %s", name, kindOf(e))}
			}
			return s, nil
		})
	case StringsMap:
		return decodeMap(v, mismatch(v, name, "a map of lists of strings", fmt.Sprintf(`write %s = { name = ["…"] }`, name)), func(e cty.Value) ([]string, *valueError) {
			if s, ok := text(e); ok {
				return []string{s}, nil
			}
			list, p := decodeStrings(e, "each entry of "+name)
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

// text returns a string, or a number or a bool converted to one.
func text(v cty.Value) (string, bool) {
	s, err := convert.Convert(v, cty.String)
	if err != nil || s.IsNull() {
		return "", false
	}
	return s.AsString(), true
}

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
			p.hint = fmt.Sprintf(`write %s = "%ss"`, name, n)
		}
		return nil, p
	}
	if v.Type() != cty.String {
		return nil, mismatch(v, name, "a duration", fmt.Sprintf(`write %s = "10s"`, name))
	}
	d, err := time.ParseDuration(v.AsString())
	if err == nil {
		return d, nil
	}
	p := &valueError{summary: fmt.Sprintf("%s is not a duration", name), hint: `write a number with a unit: "250ms", "5s", "1m" or "1h30m"`}
	if !secret {
		p.summary = fmt.Sprintf("%s is %.40q, which is not a duration", name, v.AsString())
		if days, ok := strings.CutSuffix(v.AsString(), "d"); ok && isDigits(days) {
			p.hint = "there is no unit for days; use hours: \"24h\""
		} else if isDigits(v.AsString()) {
			p.hint = fmt.Sprintf("write %s = %q", name, v.AsString()+"s")
		}
	}
	return nil, p
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
			p.hint = fmt.Sprintf(`write %s = "%sB" for bytes, or "%sMiB"`, name, n, n)
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
		p.hint = fmt.Sprintf("write %s = %q", name, meant)
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

func decodeStrings(v cty.Value, name string) ([]string, *valueError) {
	ty := v.Type()
	if !ty.IsListType() && !ty.IsTupleType() && !ty.IsSetType() {
		p := mismatch(v, name, "a list of strings", "")
		if s, ok := text(v); ok && ty == cty.String && !strings.ContainsAny(s, "\"\\\n") {
			p.hint = fmt.Sprintf(`put it in brackets: %s = ["…"]`, name)
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
