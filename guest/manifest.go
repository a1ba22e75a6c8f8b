//go:build !wasip1

package guest

import (
	"encoding/binary"
	"encoding/json"
	"fmt"
	"reflect"
	"strconv"
	"strings"
	"time"
)

// manifest is the manifest described in wasmhost/abi.
type manifest struct {
	Name     string    `json:"name"`
	Version  string    `json:"version,omitempty"`
	ABI      int       `json:"abi"`
	SDK      string    `json:"sdk"`
	Doc      string    `json:"doc,omitempty"`
	Grants   grants    `json:"grants,omitzero"`
	Settings []setting `json:"settings,omitempty"`
}

type grants struct {
	Dial []string `json:"dial,omitempty"`
	Env  []string `json:"env,omitempty"`
	DNS  []string `json:"dns,omitempty"`
}

type setting struct {
	Name      string    `json:"name"`
	Type      string    `json:"type"`
	Required  bool      `json:"required,omitempty"`
	Default   any       `json:"default,omitempty"`
	Sensitive bool      `json:"sensitive,omitempty"`
	Doc       string    `json:"doc,omitempty"`
	Block     []setting `json:"block,omitempty"`
}

// manifestOf returns the JSON of a plugin's manifest.
func manifestOf(p plugin) ([]byte, error) {
	m := manifest{
		Name: p.about.Name, Version: p.about.Version, ABI: 1, SDK: "go " + sdkVersion, Doc: p.about.Doc,
		Grants:   grants{p.about.Dial, p.about.Env, p.about.DNS},
		Settings: p.schema,
	}
	return json.MarshalIndent(m, "", "\t")
}

// sdkVersion is the version of this package, in manifests.
const sdkVersion = "1.0"

// withManifest appends a manifest to a module as a custom section named sonde.plugin.
func withManifest(module, manifest []byte) []byte {
	const name = "sonde.plugin"
	body := append([]byte{byte(len(name))}, name...)
	body = append(body, manifest...)
	module = append(module, 0) // the id of a custom section
	module = binary.AppendUvarint(module, uint64(len(body)))
	return append(module, body...)
}

// schemaOf returns the settings of a struct. It panics if a field cannot be a setting.
func schemaOf[S any]() []setting { return settingsOf(reflect.TypeFor[S]()) }

func settingsOf(t reflect.Type) []setting {
	if t.Kind() != reflect.Struct {
		panic(fmt.Sprintf("guest: settings are of type %v, must be a struct", t))
	}
	var all []setting
	for f := range t.Fields() {
		if tag, ok := tagOf(f); ok {
			s, err := settingOf(f, tag)
			if err != nil {
				panic(fmt.Sprintf("guest: field %s of %v: %v", f.Name, t, err))
			}
			all = append(all, s)
		}
	}
	return all
}

func settingOf(f reflect.StructField, t tag) (setting, error) {
	s := setting{Name: t.name, Required: t.required, Sensitive: t.sensitive, Doc: f.Tag.Get("doc")}
	if !f.IsExported() {
		return s, fmt.Errorf("field must be exported")
	}
	kind := f.Type
	if kind.Kind() == reflect.Pointer {
		kind = kind.Elem()
	}
	if kind != f.Type && kind.Kind() == reflect.Struct {
		s.Type, s.Block = "block", settingsOf(kind)
		return s, nil
	}
	s.Type = typeOf(kind)
	if s.Type == "" {
		return s, fmt.Errorf("type %v is not supported for settings", f.Type)
	}
	text, ok := f.Tag.Lookup("default")
	if !ok {
		return s, nil
	}
	var err error
	s.Default, err = defaultOf(s.Type, text)
	return s, err
}

// typeOf returns the manifest's name of a type, or "".
func typeOf(t reflect.Type) string {
	switch {
	case t == durationType:
		return "duration"
	case t == stringsType:
		return "list(string)"
	case t == mapType:
		return "map(string)"
	}
	switch t.Kind() {
	case reflect.String:
		return "string"
	case reflect.Bool:
		return "bool"
	case reflect.Int, reflect.Int64:
		return "int"
	case reflect.Float64:
		return "number"
	}
	return ""
}

// defaultOf parses the default in a tag, which is written as in HCL, but strings without quotes.
func defaultOf(kind, text string) (any, error) {
	switch kind {
	case "string":
		return text, nil
	case "duration":
		_, err := time.ParseDuration(text)
		return text, err
	case "bool":
		return strconv.ParseBool(text)
	case "int":
		return strconv.ParseInt(text, 10, 64)
	case "number":
		return strconv.ParseFloat(text, 64)
	case "list(string)":
		var list []string
		return list, json.Unmarshal([]byte(text), &list)
	}
	var m map[string]string
	return m, json.Unmarshal([]byte(text), &m)
}

// check returns an error about the first invalid setting in values, and adds the defaults.
func check(values map[string]any, schema []setting, path string) error {
	known := make(map[string]bool)
	for _, s := range schema {
		known[s.Name] = true
		v, given := values[s.Name]
		switch {
		case !given && s.Required:
			return &FieldError{path + s.Name, "must be set"}
		case !given && s.Default != nil:
			values[s.Name] = s.Default
		}
		if s.Type == "duration" {
			if err := nanoseconds(values, s.Name); err != nil {
				return &FieldError{path + s.Name, err.Error()}
			}
		}
		if block, ok := v.(map[string]any); ok && s.Type == "block" {
			if err := check(block, s.Block, path+s.Name+"."); err != nil {
				return err
			}
		}
	}
	for name := range values {
		if !known[name] {
			return &FieldError{path + name, "is not a setting of this plugin"}
		}
	}
	return nil
}

// nanoseconds replaces the text of a duration with its number of nanoseconds.
func nanoseconds(values map[string]any, name string) error {
	text, ok := values[name].(string)
	if !ok {
		return nil
	}
	d, err := time.ParseDuration(strings.TrimSpace(text))
	values[name] = d.Nanoseconds()
	return err
}
