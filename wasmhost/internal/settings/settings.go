// Package settings validates the values of a handler block against a plugin's manifest and encodes
// them as the JSON that the plugin reads.
package settings

import (
	"crypto/sha256"
	"encoding/hex"
	"encoding/json"
	"fmt"
	"maps"
	"math"
	"reflect"
	"strconv"
	"time"

	"github.com/sonde-probe/sonde/probe"
	"github.com/sonde-probe/sonde/wasmhost/abi"
)

// Settings are the settings of one handler.
type Settings struct {
	JSON     string // in the format of abi.InputSettings
	Revision string // hash of JSON
	Port     uint16 // the setting called port, if the operator wrote a number; a default does not count
	PortName string // the setting called port as text, or its default
}

// maxJSON bounds the JSON of a handler's settings, in bytes.
const maxJSON = 1 << 20

// New validates values against a manifest's settings and adds the defaults. An error about one
// setting is a *probe.FieldError.
func New(schema []abi.Setting, values map[string]any) (Settings, error) {
	all, err := withDefaults(schema, values, "")
	if err != nil {
		return Settings{}, err
	}
	text, err := json.Marshal(all)
	if err != nil {
		return Settings{}, fmt.Errorf("settings: %w", err)
	}
	if len(text) > maxJSON {
		return Settings{}, fmt.Errorf("settings are %d bytes of JSON, at most %d are allowed", len(text), maxJSON)
	}
	sum := sha256.Sum256(text)
	s := Settings{JSON: string(text), Revision: hex.EncodeToString(sum[:8])}
	if port, ok := all["port"]; ok {
		s.PortName = fmt.Sprint(port)
		if values["port"] != nil {
			n, _ := strconv.ParseUint(s.PortName, 10, 16)
			s.Port = uint16(n)
		}
	}
	return s, nil
}

// withDefaults validates the values of one block and adds the defaults. prefix precedes the names
// of fields in errors.
func withDefaults(schema []abi.Setting, values map[string]any, prefix string) (map[string]any, error) {
	all := make(map[string]any)
	known := make(map[string]bool)
	for _, s := range schema {
		known[s.Name] = true
		v, err := value(s, values[s.Name], prefix+s.Name)
		if err != nil {
			return nil, err
		}
		if v != nil {
			all[s.Name] = v
		}
	}
	for name := range values {
		if !known[name] {
			return nil, probe.FieldErrorf(prefix+name, "is not a setting of the plugin")
		}
	}
	return all, nil
}

// value validates the value of one setting, and returns the value or the default. It returns nil if
// the setting is not set and has no default.
func value(s abi.Setting, v any, name string) (any, error) {
	problem := ""
	switch {
	case v == nil && s.Required:
		problem = "must be set"
	case v == nil:
		return s.Value()
	case s.Type == abi.TypeBlock:
		if block, ok := asMap(v); ok {
			return withDefaults(s.Block, block, name+".")
		}
		problem = "must be a block"
	default:
		if v = convert(s.Type, v); v != nil {
			return v, nil
		}
		problem = fmt.Sprintf("must be of type %s", s.Type)
	}
	return nil, &probe.FieldError{Field: name, Problem: problem}
}

// asMap returns the values of a block, whose type may be a named map type.
func asMap(v any) (map[string]any, bool) {
	r, want := reflect.ValueOf(v), reflect.TypeFor[map[string]any]()
	if !r.CanConvert(want) {
		return nil, false
	}
	return r.Convert(want).Interface().(map[string]any), true
}

// convert returns a value as a Go type for encoding as JSON, or nil if it is not of type t.
func convert(t abi.Type, v any) any {
	switch t {
	case abi.TypeString:
		return only[string](v)
	case abi.TypeInt:
		if n, ok := v.(int); ok {
			return int64(n)
		}
		return only[int64](v)
	case abi.TypeNumber:
		if n, ok := v.(float64); ok && !math.IsNaN(n) && !math.IsInf(n, 0) {
			return n
		}
		return nil
	case abi.TypeBool:
		return only[bool](v)
	case abi.TypeDuration:
		return only[time.Duration](v)
	case abi.TypeStrings:
		if list, ok := v.([]string); ok {
			return append([]string{}, list...) // a nil slice must be [] in JSON, not null
		}
	case abi.TypeMap:
		if m, ok := v.(map[string]string); ok {
			return maps.Collect(maps.All(m)) // a nil map must be {} in JSON, not null
		}
	}
	return nil
}

func only[T any](v any) any {
	if v, ok := v.(T); ok {
		return v
	}
	return nil
}
