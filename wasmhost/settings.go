package wasmhost

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

	"github.com/sonde-probe/sonde/wasmhost/abi"
)

// settings are those of one handler, as a plugin gets them.
type settings struct {
	json     string
	revision string // another one for other settings
	port     uint16 // of the setting called port, when that is a number
	portName string // and its text
}

// maxSettings bounds the JSON of a handler's settings, in bytes.
const maxSettings = 1 << 20

// makeSettings checks values against a manifest and adds the defaults. An error is
// a *probe.FieldError.
func makeSettings(schema []abi.Setting, values map[string]any) (settings, error) {
	full, err := complete(schema, values, "")
	if err != nil {
		return settings{}, err
	}
	text, err := json.Marshal(full)
	if err != nil {
		return settings{}, fmt.Errorf("settings: %w", err)
	}
	if len(text) > maxSettings {
		return settings{}, fmt.Errorf("settings: they are %d bytes long, at most %d are allowed", len(text), maxSettings)
	}
	sum := sha256.Sum256(text)
	s := settings{json: string(text), revision: hex.EncodeToString(sum[:8])}
	if port, ok := full["port"]; ok {
		s.portName = fmt.Sprint(port)
		n, _ := strconv.ParseUint(s.portName, 10, 16)
		s.port = uint16(n)
	}
	return s, nil
}

// complete checks one block's values and adds the defaults.
func complete(schema []abi.Setting, values map[string]any, block string) (map[string]any, error) {
	full := make(map[string]any)
	known := make(map[string]bool)
	for _, s := range schema {
		known[s.Name] = true
		v, err := one(s, values[s.Name], block+s.Name)
		if err != nil {
			return nil, err
		}
		if v != nil {
			full[s.Name] = v
		}
	}
	for name := range values {
		if !known[name] {
			return nil, field(block+name, "is not a setting of the plugin")
		}
	}
	return full, nil
}

// one checks one setting's value.
func one(s abi.Setting, v any, name string) (any, error) {
	switch {
	case v == nil && s.Required:
		return nil, field(name, "must be set")
	case v == nil:
		return s.Value()
	case s.Type != abi.TypeBlock:
		if v = convert(s.Type, v); v == nil {
			return nil, field(name, "must be of the type %s", s.Type)
		}
		return v, nil
	}
	inside, ok := asMap(v)
	if !ok {
		return nil, field(name, "must be a block")
	}
	return complete(s.Block, inside, name+".")
}

// asMap returns a block's values, whatever its type is called.
func asMap(v any) (map[string]any, bool) {
	r, want := reflect.ValueOf(v), reflect.TypeFor[map[string]any]()
	if !r.CanConvert(want) {
		return nil, false
	}
	return r.Convert(want).Interface().(map[string]any), true
}

// convert returns a value as JSON is made from it, or nil when it is not of the type.
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
			return append([]string{}, list...) // an empty one is [] in JSON, not null
		}
	case abi.TypeMap:
		if m, ok := v.(map[string]string); ok {
			return maps.Collect(maps.All(m))
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
