package config

import (
	"encoding"
	"errors"
	"fmt"
	"reflect"
	"slices"
	"strings"
	"time"

	"github.com/sonde-probe/sonde/internal/limits"
	"github.com/sonde-probe/sonde/probe"
)

// Of returns the Handler for a constructor that takes a struct. Each of the
// struct's fields that can be set in HCL has a tag:
//
//	Path  string        `hcl:"path"`                        // required
//	Port  string        `hcl:"port,optional"`
//	Key   string        `hcl:"key,optional,sensitive"`      // its value is never shown
//	Wait  time.Duration `hcl:"wait,optional,nonzero"`       // 0 is an error: in Go it stands for the default
//	Size  int64         `hcl:"size,optional,bytes"`         // written "32MiB"
//	Dir   string        `hcl:"dir,optional,path"`           // on the machine of the engine
//	Unix  string        `hcl:"unix,optional,socket"`        // the same for a socket, or @ and a name
//	Mode  string        `hcl:"mode,optional" oneof:"a b"`   // one of these words
//	Count int           `hcl:"count,optional" doc:"attempts" default:"3" min:"1" max:"9"`
//	TLS   *TLS          `hcl:"tls,block"`                   // a struct with such tags
//	Retry Retry         `hcl:"retry,object"`                // likewise, written retry = { … }
//	Name  string        `hcl:"name,label" doc:"the name"`   // the label of the block, which can be left out; of a driver
//	Made  string        `hcl:"-"`                           // not in HCL
//
// A path on the machine of the engine needs the option path, and a socket the option socket, whatever the name of the
// argument is, such as ca_file: only of these a push refuses relative ones, which each engine would begin where it was
// started.
//
// The tags doc, default, min and max become Doc, Unset, Min and Max of the Field. SettingsOf
// checks min, max and oneof; a constructor checks them itself, since Go programs call it too.
//
// The fields of a struct that is embedded without a tag count as those of the struct.
//
// A field may be a string, bool, int, int32, int64, float64, time.Duration,
// []string, map[string]string, map[string][]string, a type with text methods
// (encoding.TextUnmarshaler), or a pointer to one of them. A field of type
// probe.Compatibility without a tag is set to that of the engine. Of panics if a
// field has another type.
func Of[C any, H probe.Handler](build func(C) (H, error)) Handler {
	return Handler{
		Schema: schemaOf(reflect.TypeFor[C]()),
		Make: func(v Values, c Context) (probe.Handler, error) {
			var config C
			if err := fill(&config, v, c).Err(); err != nil {
				return nil, err
			}
			h, err := build(config)
			if err != nil {
				return nil, err
			}
			return h, nil
		},
	}
}

// SettingsOf returns the Settings for a struct with tags as those of Of. What is
// decoded has type T. Check returns what else is wrong with it: a
// *probe.FieldError, or several; it may be nil.
func SettingsOf[T any](check func(T) error) Settings {
	if check == nil {
		return settingsOf[T](nil)
	}
	return settingsOf(func(settings T, _ Context) error { return check(settings) })
}

func settingsOf[T any](check func(T, Context) error) Settings {
	return Settings{
		schema: schemaOf(reflect.TypeFor[T]()),
		decode: func(v Values, c Context) (any, error) {
			var settings T
			wrong := append(fill(&settings, v, c), limits.Check(&settings, "")...)
			err := wrong.Err()
			if check != nil {
				for _, one := range Separate(check(settings, c)) {
					if !followsFrom(one, wrong) {
						err = errors.Join(err, one)
					}
				}
			}
			return settings, err
		},
	}
}

// followsFrom reports whether an error is about a field that has another error, or
// about the block of such a field.
func followsFrom(err error, others probe.FieldErrors) bool {
	field, ok := errors.AsType[*probe.FieldError](err)
	return ok && slices.ContainsFunc(others, func(other *probe.FieldError) bool {
		return other.Field == field.Field || strings.HasPrefix(other.Field, field.Field+".")
	})
}

// DriverOf returns the Driver for a struct as SettingsOf takes it. Check is that of
// SettingsOf, but knows the engine block. Target returns what probes of the target take
// from the block: its Address, Env, Dir, User and Runtime. Both may be nil.
func DriverOf[T any](check func(T, Context) error, target func(T) probe.Target) Driver {
	d := Driver{Settings: settingsOf(check)}
	if target != nil {
		d.target = func(settings any) probe.Target { return target(settings.(T)) }
	}
	return d
}

// tag is the content of `hcl:"name,option"`.
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

// isEmbedded reports whether a field without a tag is a struct whose fields are those of the block.
func isEmbedded(f reflect.StructField) bool { return f.Anonymous && f.Type.Kind() == reflect.Struct }

func (t tag) has(option string) bool { return slices.Contains(t.options, option) }

// schemaOf returns the schema of a struct.
func schemaOf(t reflect.Type) Schema {
	var s Schema
	defaults := defaultsOf(t)
	for f := range t.Fields() {
		tag, ok := tagOf(f)
		if !ok {
			if isEmbedded(f) {
				s.Fields = append(s.Fields, schemaOf(f.Type).Fields...)
			}
			continue
		}
		if tag.has("label") {
			s.Label = tag.name
			continue
		}
		field := Field{Name: tag.name, Required: !tag.has("optional"), Sensitive: tag.has("sensitive"), NonZero: tag.has("nonzero"),
			Path: tag.has("path"), Socket: tag.has("socket"),
			Unset: f.Tag.Get("default"), Min: f.Tag.Get("min"), Max: f.Tag.Get("max"), Doc: f.Tag.Get("doc")}
		switch {
		case tag.has("block"), tag.has("object"):
			inside := schemaOf(pointed(f.Type))
			field.Type, field.Block, field.Required = Block, &inside, false
			if tag.has("object") {
				field.Type = Object
			}
		case tag.has("bytes"):
			field.Type = Size
		default:
			field.Type = typeOf(f)
			if words, ok := f.Tag.Lookup("oneof"); ok {
				field.OneOf = strings.Fields(words)
			} else {
				field.OneOf = enumeration(pointed(f.Type))
			}
		}
		if defaults.IsValid() && field.Unset == "" && field.Type != Block {
			field.Unset = fmt.Sprint(defaults.FieldByIndex(f.Index).Interface())
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

// enumeration returns the words of an integer type with text methods, by value.
func enumeration(t reflect.Type) (words []string) {
	const maxWords = 16
	v := reflect.New(t)
	in, reads := v.Interface().(encoding.TextUnmarshaler)
	out, writes := v.Interface().(encoding.TextMarshaler)
	if t.Kind() != reflect.Uint8 || !reads || !writes {
		return nil
	}
	for i := range uint64(maxWords) {
		v.Elem().SetUint(i)
		if word, err := out.MarshalText(); err == nil && in.UnmarshalText(word) == nil {
			words = append(words, string(word))
		}
	}
	return words
}

// fill sets the tagged fields of a struct to the values of a block, and returns
// every value that does not fit.
func fill(to any, v Values, c Context) probe.FieldErrors {
	var wrong probe.FieldErrors
	fillStruct(reflect.ValueOf(to).Elem(), v, c, "", &wrong)
	return wrong
}

// fillStruct is fill for the block whose name is path, with a dot at its end.
func fillStruct(to reflect.Value, v Values, c Context, path string, wrong *probe.FieldErrors) {
	for f := range to.Type().Fields() {
		field := to.FieldByIndex(f.Index)
		tag, ok := tagOf(f)
		if !ok {
			if isEmbedded(f) {
				fillStruct(field, v, c, path, wrong)
			} else if f.Type == reflect.TypeFor[probe.Compatibility]() {
				field.Set(reflect.ValueOf(c.Compatibility))
			}
			continue
		}
		if given, ok := v[tag.name]; ok {
			fillField(field, given, c, path+tag.name, wrong)
		}
	}
}

func fillField(to reflect.Value, given any, c Context, name string, wrong *probe.FieldErrors) {
	if to.Kind() == reflect.Pointer {
		to.Set(reflect.New(to.Type().Elem()))
		to = to.Elem()
	}
	if inside, ok := given.(Values); ok {
		fillStruct(to, inside, c, name+".", wrong)
		return
	}
	if u, ok := to.Addr().Interface().(encoding.TextUnmarshaler); ok {
		var named *probe.FieldError
		if err := u.UnmarshalText([]byte(given.(string))); errors.As(err, &named) {
			wrong.Add(name, "%s", named.Problem)
		} else if err != nil {
			wrong.Add(name, "%v", err)
		}
		return
	}
	if n, ok := given.(int64); ok && to.OverflowInt(n) {
		wrong.Add(name, "is too large")
		return
	}
	to.Set(reflect.ValueOf(given).Convert(to.Type()))
}
