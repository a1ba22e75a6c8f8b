package config

import (
	"encoding"
	"errors"
	"fmt"
	"reflect"
	"slices"
	"strings"
	"time"

	"github.com/sonde-probe/sonde/probe"
)

// Of returns the Handler for a constructor of a handler from a struct. Each of
// the struct's fields has a tag:
//
//	Path string      `hcl:"path"`              // required
//	Port string      `hcl:"port,optional"`
//	Key  string      `hcl:"key,optional,sensitive"`
//	Wait time.Duration `hcl:"wait,optional,nonzero"` // 0 is an error in HCL
//	TLS  *TLS        `hcl:"tls,block"`         // a struct with such tags
//	Made string      `hcl:"-"`                 // not in HCL
//
// It may be a string, bool, int, int32, int64, float64, time.Duration, Bytes,
// []string, map[string]string, map[string][]string, a pointer to one of them, or a
// type with UnmarshalText. A field of type probe.Compatibility that is not in HCL
// is set to that of the engine. Of panics when a field's type is none of these.
func Of[C any, H probe.Handler](build func(C) (H, error)) Handler {
	return Handler{
		Schema: schemaOf(reflect.TypeFor[C]()),
		Make: func(v Values, c Context) (probe.Handler, error) {
			var config C
			var wrong probe.FieldErrors
			if fill(reflect.ValueOf(&config).Elem(), v, c, "", &wrong); len(wrong) > 0 {
				return nil, wrong
			}
			h, err := build(config)
			if err != nil {
				return nil, err
			}
			return h, nil
		},
	}
}

// tag is what stands in `hcl:"name,option"`.
type tag struct {
	name    string
	options []string
}

func tagOf(f reflect.StructField) (tag, bool) {
	text, ok := f.Tag.Lookup("hcl")
	if !ok || text == "-" {
		return tag{}, false
	}
	parts := strings.Split(text, ",")
	return tag{parts[0], parts[1:]}, true
}

func (t tag) has(option string) bool { return slices.Contains(t.options, option) }

func schemaOf(t reflect.Type) Schema {
	var s Schema
	defaults := defaultsOf(t)
	for f := range t.Fields() {
		tag, ok := tagOf(f)
		if !ok {
			continue
		}
		field := Field{Name: tag.name, Required: !tag.has("optional"), Sensitive: tag.has("sensitive"), NonZero: tag.has("nonzero"), Doc: f.Tag.Get("doc")}
		if tag.has("block") || tag.has("object") {
			inside := schemaOf(pointed(f.Type))
			field.Type, field.Block, field.Required = Block, &inside, false
			if tag.has("object") {
				field.Type = Object
			}
		} else {
			field.Type = typeOf(f)
		}
		if defaults.IsValid() {
			field.zeroMeans = fmt.Sprint(defaults.FieldByIndex(f.Index).Interface())
		}
		s.Fields = append(s.Fields, field)
	}
	return s
}

// defaultsOf returns the zero struct with its defaults, if its type has a method
// WithDefaults.
func defaultsOf(t reflect.Type) reflect.Value {
	m, ok := t.MethodByName("WithDefaults")
	if !ok || m.Type.NumIn() != 1 || m.Type.NumOut() != 1 || m.Type.Out(0) != t {
		return reflect.Value{}
	}
	return m.Func.Call([]reflect.Value{reflect.Zero(t)})[0]
}

func pointed(t reflect.Type) reflect.Type {
	if t.Kind() == reflect.Pointer {
		return t.Elem()
	}
	return t
}

func typeOf(f reflect.StructField) Type {
	t := pointed(f.Type)
	if reflect.PointerTo(t).Implements(reflect.TypeFor[encoding.TextUnmarshaler]()) {
		return String
	}
	switch t {
	case reflect.TypeFor[time.Duration]():
		return Duration
	case reflect.TypeFor[Bytes]():
		return Size
	case reflect.TypeFor[[]string]():
		return Strings
	case reflect.TypeFor[map[string]string]():
		return StringMap
	case reflect.TypeFor[map[string][]string]():
		return StringsMap
	}
	switch t.Kind() {
	case reflect.String:
		return String
	case reflect.Bool:
		return Bool
	case reflect.Int, reflect.Int32, reflect.Int64:
		return Int
	case reflect.Float64:
		return Float
	}
	panic(fmt.Sprintf("config: field %s has type %v, which HCL cannot fill", f.Name, f.Type))
}

// fill sets the tagged fields of a struct to the values of a block, and adds every
// value that does not fit to wrong. Path is the HCL name of the block the struct
// stands for, with a dot at its end.
func fill(to reflect.Value, v Values, c Context, path string, wrong *probe.FieldErrors) {
	for f := range to.Type().Fields() {
		field := to.FieldByIndex(f.Index)
		tag, ok := tagOf(f)
		if !ok {
			if f.Type == reflect.TypeFor[probe.Compatibility]() {
				field.Set(reflect.ValueOf(c.Compatibility))
			}
			continue
		}
		if given, ok := v[tag.name]; ok {
			set(field, given, c, path+tag.name, wrong)
		}
	}
}

func set(to reflect.Value, given any, c Context, name string, wrong *probe.FieldErrors) {
	if to.Kind() == reflect.Pointer {
		to.Set(reflect.New(to.Type().Elem()))
		to = to.Elem()
	}
	if inside, ok := given.(Values); ok {
		fill(to, inside, c, name+".", wrong)
		return
	}
	if u, ok := to.Addr().Interface().(encoding.TextUnmarshaler); ok {
		if err := u.UnmarshalText([]byte(given.(string))); err != nil {
			wrong.Add(name, "%s", problemOf(err))
		}
		return
	}
	if n, ok := given.(int64); ok && to.OverflowInt(n) {
		wrong.Add(name, "is too large")
		return
	}
	to.Set(reflect.ValueOf(given).Convert(to.Type()))
}

// problemOf returns an error's text without the field that it may name itself.
func problemOf(err error) string {
	var field *probe.FieldError
	if errors.As(err, &field) {
		return field.Problem
	}
	return err.Error()
}
