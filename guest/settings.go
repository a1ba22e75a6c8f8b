package guest

import (
	"reflect"
	"strconv"
	"strings"
	"sync"
	"time"
)

// tag is a parsed tag `sonde:"name,option"`.
type tag struct {
	name                string
	required, sensitive bool
}

// tagOf returns the tag of a field, or false if the field is not a setting.
func tagOf(f reflect.StructField) (tag, bool) {
	text, ok := f.Tag.Lookup("sonde")
	if !ok || text == "-" {
		return tag{}, false
	}
	name, options, _ := strings.Cut(text, ",")
	t := tag{name: name}
	for option := range strings.SplitSeq(options, ",") {
		switch option {
		case "required":
			t.required = true
		case "sensitive":
			t.sensitive = true
		}
	}
	return t, true
}

// structs caches the settings of structs by reflect.Type: each value is a map[string]int from the name of a
// setting to the index of its field. Register fills the cache for its settings, so that the image that attempts
// start from contains them.
var structs sync.Map

// fieldsOf returns the settings of a struct, and caches them and those of its blocks.
func fieldsOf(t reflect.Type) map[string]int {
	if known, ok := structs.Load(t); ok {
		return known.(map[string]int)
	}
	if t.Kind() != reflect.Struct {
		return nil
	}
	found := make(map[string]int)
	for i := range t.NumField() {
		f := t.Field(i)
		tag, ok := tagOf(f)
		if !ok {
			continue
		}
		found[tag.name] = i
		if f.Type.Kind() == reflect.Pointer {
			fieldsOf(f.Type.Elem())
		}
	}
	structs.Store(t, found)
	return found
}

// decode decodes the JSON of settings into a struct and ignores unknown settings. The host has
// validated them against the schema, so an error means that the manifest does not match this
// program.
func decode(text string, into any) error {
	r := reader{text: text}
	if err := r.object(reflect.ValueOf(into).Elem(), ""); err != nil {
		return err
	}
	if r.space(); len(r.text) > 0 {
		return &FieldError{"settings", "have unexpected text after the JSON object"}
	}
	return nil
}

// object decodes the settings of one block. path is the block's name and a dot.
func (r *reader) object(v reflect.Value, path string) error {
	fields := fieldsOf(v.Type())
	return r.members(func(name string) error {
		i, ok := fields[name]
		if !ok {
			return r.skipTo(maxDepth)
		}
		return r.setting(v.Field(i), path, name)
	})
}

var (
	durationType = reflect.TypeFor[time.Duration]()
	stringsType  = reflect.TypeFor[[]string]()
	mapType      = reflect.TypeFor[map[string]string]()
)

// setting decodes one value. path is that of its block. It allocates little, because allocation is most
// of the cost of settings in a plugin.
func (r *reader) setting(v reflect.Value, path, name string) (err error) {
	if r.null() {
		v.SetZero()
		return nil
	}
	switch v.Kind() {
	case reflect.String:
		var s string
		s, err = r.string()
		v.SetString(s)
	case reflect.Bool:
		var b bool
		b, err = r.boolean()
		v.SetBool(b)
	case reflect.Int, reflect.Int64:
		var n int64
		n, err = strconv.ParseInt(r.number(), 10, 64)
		v.SetInt(n)
	case reflect.Float64:
		var n float64
		n, err = strconv.ParseFloat(r.number(), 64)
		v.SetFloat(n)
	case reflect.Slice:
		var list []string
		err = r.elements(func() error {
			s, err := r.string()
			list = append(list, s)
			return err
		})
		v.Set(reflect.ValueOf(list))
	case reflect.Map:
		m := make(map[string]string)
		err = r.members(func(key string) (err error) {
			m[key], err = r.string()
			return err
		})
		v.Set(reflect.ValueOf(m))
	case reflect.Pointer:
		v.Set(reflect.New(v.Type().Elem()))
		return r.setting(v.Elem(), path, name)
	case reflect.Struct:
		return r.object(v, path+name+".")
	}
	if err != nil {
		return &FieldError{path + name, "does not have the type that the plugin expects: " + err.Error()}
	}
	return nil
}
