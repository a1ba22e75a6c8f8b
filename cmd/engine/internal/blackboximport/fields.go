package blackboximport

import (
	"fmt"
	"maps"
	"slices"
	"strconv"
	"time"

	"github.com/sonde-probe/sonde/config/document"
)

// fields is an object of the file. Fields are removed from values when they are read, so that the unsupported ones remain.
type fields struct {
	im     *importer
	path   string // of the object: "modules.http_2xx.http"
	short  string // path without the module: "http"
	values map[string]any
}

// take removes a field and returns its value.
func (f *fields) take(name string) (v any, given bool) {
	v, given = f.values[name]
	delete(f.values, name)
	return v, given && v != nil
}

// takeAll removes all fields.
func (f *fields) takeAll() { clear(f.values) }

// left returns the paths, within the module, of fields that were not read. Empty and false fields are skipped.
func (f *fields) left() (all []string) {
	for _, name := range slices.Sorted(maps.Keys(f.values)) {
		if !isEmpty(f.values[name]) {
			all = append(all, join(f.short, name))
		}
	}
	return all
}

func isEmpty(v any) bool {
	switch v := v.(type) {
	case nil:
		return true
	case []any:
		return len(v) == 0
	case map[string]any:
		return len(v) == 0
	}
	return v == false || v == "" || v == 0.0
}

// lose records that a field is not supported although it was read.
func (f *fields) lose(name string) { f.im.lost = append(f.im.lost, join(f.short, name)) }

// family reads the IP family of addresses, and writes it for a handler with ip_family.
func (f *fields) family(body *document.Body) {
	preferred, falls := f.text("preferred_ip_protocol"), f.flag("ip_protocol_fallback", true)
	version, known := map[string]string{"": "6", "ip4": "4", "ip6": "6"}[preferred] // ip6 is the default
	switch {
	case !known:
		f.wrong("preferred_ip_protocol", "ip4 or ip6")
	case !falls:
		body.Set("ip_family", version)
	case preferred != "":
		body.Set("ip_family", "prefer_"+version)
	}
}

// copy writes a text field as an argument, if it is set.
func (f *fields) copy(name string, to *document.Body, argument string) {
	if text := f.text(name); text != "" {
		to.Set(argument, text)
	}
}

func join(path, name string) string {
	if path == "" {
		return name
	}
	return path + "." + name
}

func (f *fields) wrong(name, want string) {
	f.im.errs = append(f.im.errs, fmt.Errorf("%s: %s must be %s", f.im.file, join(f.path, name), want))
}

// object takes an object. The result is empty if the field is missing or not an object.
func (f *fields) object(name string) *fields {
	o := &fields{im: f.im, path: join(f.path, name), short: join(f.short, name)}
	f.im.objects = append(f.im.objects, o)
	if f.path == "" || f.path == "modules" { // warnings name the module separately
		o.short = ""
	}
	o.values = taken(f, name, "an object", as[map[string]any])
	return o
}

// taken takes a field and converts it. If convert reports false, it records an error that the field must be want.
func taken[T any](f *fields, name, want string, convert func(any) (T, bool)) (value T) {
	v, given := f.take(name)
	if !given {
		return value
	}
	value, ok := convert(v)
	if !ok {
		f.wrong(name, want)
	}
	return value
}

func as[T any](v any) (T, bool) {
	t, ok := v.(T)
	return t, ok
}

// text takes a text. Numbers and booleans count as texts.
func (f *fields) text(name string) string { return taken(f, name, "a text", scalar) }

func scalar(v any) (string, bool) {
	switch v := v.(type) {
	case string:
		return v, true
	case float64:
		return strconv.FormatFloat(v, 'f', -1, 64), true
	case bool:
		return strconv.FormatBool(v), true
	}
	return "", false
}

// texts takes a list of texts; numbers and booleans count as texts.
func (f *fields) texts(name string) []string {
	return taken(f, name, "a list of texts", func(v any) (all []string, ok bool) {
		list, ok := v.([]any)
		for _, one := range list {
			s, isText := scalar(one)
			ok = ok && isText
			all = append(all, s)
		}
		return all, ok
	})
}

// flag takes a bool. without is its default.
func (f *fields) flag(name string, without bool) bool {
	if f.values[name] == nil {
		return without
	}
	return taken(f, name, "true or false", as[bool])
}

// textMap takes an object of texts.
func (f *fields) textMap(name string) map[string]string {
	o := f.object(name)
	all := make(map[string]string, len(o.values))
	for key, v := range o.values {
		s, ok := scalar(v)
		if !ok {
			f.wrong(name, "an object of texts")
		}
		all[key] = s
	}
	o.takeAll()
	return all
}

// objects takes a list of objects.
func (f *fields) objects(name string) []*fields {
	return taken(f, name, "a list of objects", func(v any) (all []*fields, ok bool) {
		list, ok := v.([]any)
		for i, one := range list {
			values, isObject := one.(map[string]any)
			ok = ok && isObject
			at := fmt.Sprintf("%s[%d]", name, i)
			all = append(all, &fields{im: f.im, path: join(f.path, at), short: join(f.short, at), values: values})
		}
		f.im.objects = append(f.im.objects, all...)
		return all, ok
	})
}

// duration parses a duration in the format of Prometheus or Go: "5s".
func (f *fields) duration(name, text string) time.Duration {
	d, err := time.ParseDuration(text)
	if err != nil || d < time.Millisecond || d > maxDuration {
		f.wrong(name, fmt.Sprintf("a duration from 1ms to %v", maxDuration))
		return time.Second
	}
	return d
}
