// Package limits validates the fields of a configuration by the tags that also describe them in HCL: min, max and
// oneof. It is shared by package config and by packages that take a configuration from a Go program.
package limits

import (
	"fmt"
	"reflect"
	"slices"
	"strconv"
	"strings"
	"time"

	"github.com/sonde-probe/sonde/internal/bytesize"
	"github.com/sonde-probe/sonde/probe"
)

// Check returns an error for each field of a struct, and of the structs in it, that is outside its limits. An optional
// field may have its zero value. path is the prefix of the field names: "tls.", or "" for none.
//
// The tags are those of config.Of. The limits of a duration are written as "10ms", and those of a field with the option
// bytes as "64KiB".
func Check(of any, path string) (wrong probe.FieldErrors) {
	check(reflect.Indirect(reflect.ValueOf(of)), path, &wrong)
	return wrong
}

func check(s reflect.Value, path string, wrong *probe.FieldErrors) {
	for f, v := range s.Fields() {
		name, options, _ := strings.Cut(f.Tag.Get("hcl"), ",")
		isGiven := v.Kind() == reflect.Pointer || !v.IsZero() || !strings.Contains(options, "optional")
		switch v = reflect.Indirect(v); {
		case !v.IsValid() || name == "-":
		case v.Kind() == reflect.Struct && name != "":
			check(v, path+name+".", wrong)
		case v.Kind() == reflect.Struct && f.Anonymous:
			check(v, path, wrong)
		case !isGiven:
		default:
			if problem := problemOf(v, f.Tag, strings.Contains(options, "bytes")); problem != "" {
				wrong.Add(path+name, "%s", problem)
			}
		}
	}
}

// problemOf returns the problem of a field's value, or "".
func problemOf(v reflect.Value, tag reflect.StructTag, isSize bool) string {
	if words := strings.Fields(tag.Get("oneof")); v.Kind() == reflect.String && len(words) > 0 && !slices.Contains(words, v.String()) {
		last := len(words) - 1
		return fmt.Sprintf("is %q; it must be %s or %s", v.String(), strings.Join(words[:last], ", "), words[last])
	}
	least, most := tag.Get("min"), tag.Get("max")
	if !v.CanInt() || least == "" && most == "" {
		return ""
	}
	parse := func(text string) int64 { n, _ := strconv.ParseInt(text, 10, 64); return n }
	show := func(n int64) any { return n }
	if v.Type() == reflect.TypeFor[time.Duration]() {
		parse = func(text string) int64 { d, _ := time.ParseDuration(text); return int64(d) }
		show = func(n int64) any { return probe.FormatDuration(time.Duration(n)) }
	} else if isSize {
		parse = func(text string) int64 { size, _ := bytesize.Parse(text); return int64(size) }
		show = func(n int64) any { return bytesize.Size(n) }
	}
	n, low, high := v.Int(), parse(least), parse(most)
	switch isLow, isHigh := least != "" && n < low, most != "" && n > high; {
	case !isLow && !isHigh:
		return ""
	case most == "":
		return fmt.Sprintf("is %v; it must be at least %v", show(n), show(low))
	case least == "":
		return fmt.Sprintf("is %v; it must be at most %v", show(n), show(high))
	}
	return fmt.Sprintf("is %v; it must be from %v to %v", show(n), show(low), show(high))
}
