package abi

import (
	"bytes"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"math"
	"slices"
	"strings"
	"time"
	"unicode"
	"unicode/utf8"
)

// Manifest describes a plugin and the settings that its handler block accepts. Unknown
// JSON fields are ignored, so that later versions can add fields.
type Manifest struct {
	Name     string    `json:"name"`               // letters a-z, digits, underscores; required
	Version  string    `json:"version,omitempty"`  // of the plugin, such as "1.4.2"
	ABI      int       `json:"abi"`                // version of package abi: 1; required
	SDK      string    `json:"sdk,omitempty"`      // name and version of the SDK, such as "go 1.0"
	Doc      string    `json:"doc,omitempty"`      // one sentence: what it probes
	Grants   Grants    `json:"grants,omitzero"`    // shown to the operator, never granted automatically
	Settings []Setting `json:"settings,omitempty"` // in the order in which they are documented
}

// Grants lists the destinations, variables and names that a plugin needs, as written in a grant
// block: "target", "tcp://10.0.0.0/8:6379", "tls://*.internal:6380".
type Grants struct {
	Dial []string `json:"dial,omitempty"` // destinations of connections
	Env  []string `json:"env,omitempty"`  // names of the engine's environment variables
	DNS  []string `json:"dns,omitempty"`  // host names to look up
}

// Setting is one argument, or one block, of a plugin's handler block.
type Setting struct {
	Name      string          `json:"name"` // letters a-z, digits, underscores; required
	Type      Type            `json:"type"` // required
	Required  bool            `json:"required,omitempty"`
	Default   json.RawMessage `json:"default,omitempty"`   // of the setting's type; a duration as "1.5s"; not for blocks
	Sensitive bool            `json:"sensitive,omitempty"` // its value is never shown
	Doc       string          `json:"doc,omitempty"`       // one sentence: meaning, unit, range
	Block     []Setting       `json:"block,omitempty"`     // settings inside the block, for TypeBlock
}

// Type is the type of a setting.
type Type string

// The types of settings.
const (
	TypeString   Type = "string"
	TypeInt      Type = "int"      // a whole number of 64 bits
	TypeNumber   Type = "number"   // a floating-point number of 64 bits
	TypeBool     Type = "bool"     //
	TypeDuration Type = "duration" // written "1.5s"; in InputSettings, nanoseconds
	TypeStrings  Type = "list(string)"
	TypeMap      Type = "map(string)"
	TypeBlock    Type = "block" // at most one block; an object in JSON
)

// Types returns all types.
func Types() []Type {
	return []Type{TypeString, TypeInt, TypeNumber, TypeBool, TypeDuration, TypeStrings, TypeMap, TypeBlock}
}

// Bounds of a manifest.
const (
	MaxManifest = 64 << 10 // bytes of its JSON
	MaxName     = 63       // bytes of a plugin's or a setting's name
	maxVersion  = 63       // bytes of Version, and of SDK
	maxDoc      = 1 << 10  // bytes of each Doc
	maxSettings = 256      // settings, including those in blocks
	maxDepth    = 3        // of nested blocks
	maxGrants   = 64       // of each kind
	maxGrant    = 512      // bytes of each
)

// ParseManifest parses the JSON of a manifest and validates it.
func ParseManifest(text []byte) (Manifest, error) {
	if len(text) > MaxManifest {
		return Manifest{}, fmt.Errorf("manifest is %d bytes long, at most %d are allowed", len(text), MaxManifest)
	}
	var m Manifest
	d := json.NewDecoder(bytes.NewReader(text))
	if err := d.Decode(&m); err != nil {
		return Manifest{}, fmt.Errorf("manifest: %w", err)
	}
	if _, err := d.Token(); !errors.Is(err, io.EOF) {
		return Manifest{}, errors.New("manifest: unexpected text after the JSON object")
	}
	return m, m.Check()
}

// Check returns an error that names the first invalid field of m, or nil.
func (m Manifest) Check() error {
	if err := m.check(); err != nil {
		return fmt.Errorf("manifest: %w", err)
	}
	return nil
}

func (m Manifest) check() error {
	if m.ABI != Version {
		return fmt.Errorf("abi is %d; this host supports %d", m.ABI, Version)
	}
	if err := checkName(m.Name); err != nil {
		return err
	}
	for field, text := range map[string]string{"version": m.Version, "sdk": m.SDK} {
		if err := checkText(text, maxVersion); err != nil {
			return fmt.Errorf("%s %w", field, err)
		}
	}
	if err := checkText(m.Doc, maxDoc); err != nil {
		return fmt.Errorf("doc %w", err)
	}
	if err := m.Grants.check(); err != nil {
		return fmt.Errorf("grants: %w", err)
	}
	left := maxSettings
	return checkSettings(m.Settings, 0, &left)
}

// checkName validates the name of a plugin or a setting.
func checkName(s string) error {
	switch {
	case s == "":
		return errors.New("name must not be empty")
	case len(s) > MaxName:
		return fmt.Errorf("name is %d bytes long, at most %d are allowed", len(s), MaxName)
	case !IsName(s):
		return fmt.Errorf("name %.80q is invalid: write a letter a-z, then letters, digits or underscores", s)
	}
	return nil
}

// IsName reports whether s is a valid name of a plugin, a setting or a metric: a letter a-z,
// then letters, digits and underscores; at most MaxName bytes.
func IsName(s string) bool {
	return s != "" && len(s) <= MaxName && s[0] >= 'a' && s[0] <= 'z' &&
		strings.Trim(s, "abcdefghijklmnopqrstuvwxyz0123456789_") == ""
}

// checkText validates a text that is shown to people. The caller prefixes the error with the name
// of the field.
func checkText(s string, most int) error {
	switch {
	case len(s) > most:
		return fmt.Errorf("is %d bytes long, at most %d are allowed", len(s), most)
	case !utf8.ValidString(s) || strings.ContainsFunc(s, func(r rune) bool {
		return unicode.IsControl(r) || r == '\u2028' || r == '\u2029' || unicode.Is(unicode.Bidi_Control, r)
	}):
		return errors.New("must be UTF-8 without control characters")
	}
	return nil
}

func (g Grants) check() error {
	for field, list := range map[string][]string{"dial": g.Dial, "env": g.Env, "dns": g.DNS} {
		if len(list) > maxGrants {
			return fmt.Errorf("%s has %d entries, at most %d are allowed", field, len(list), maxGrants)
		}
		for _, grant := range list {
			if grant == "" {
				return fmt.Errorf("%s has an empty entry", field)
			}
			if err := checkText(grant, maxGrant); err != nil {
				return fmt.Errorf("an entry of %s %w", field, err)
			}
		}
	}
	return nil
}

// checkSettings validates the settings of one block and of the blocks inside it; left is the number
// of further settings that are allowed.
func checkSettings(settings []Setting, depth int, left *int) error {
	if *left -= len(settings); *left < 0 {
		return fmt.Errorf("more than %d settings", maxSettings)
	}
	if depth > maxDepth && len(settings) > 0 {
		return fmt.Errorf("blocks are nested more than %d deep", maxDepth)
	}
	seen := make(map[string]bool)
	for i, s := range settings {
		if err := s.check(depth, left); err != nil {
			return fmt.Errorf("setting %d (%.80q): %w", i, s.Name, err)
		}
		if seen[s.Name] {
			return fmt.Errorf("setting %d (%q) is declared twice", i, s.Name)
		}
		seen[s.Name] = true
	}
	return nil
}

func (s Setting) check(depth int, left *int) error {
	if err := checkName(s.Name); err != nil {
		return err
	}
	if err := checkText(s.Doc, maxDoc); err != nil {
		return fmt.Errorf("doc %w", err)
	}
	isBlock := s.Type == TypeBlock
	switch {
	case !slices.Contains(Types(), s.Type):
		return fmt.Errorf("type %.40q is unknown: use one of %v", s.Type, Types())
	case !isBlock && len(s.Block) > 0:
		return fmt.Errorf("block is not allowed with type %s", s.Type)
	case s.Default != nil && s.Required:
		return errors.New("default is not allowed with required")
	case s.Default != nil && isBlock:
		return errors.New("default is not allowed with a block")
	}
	if _, err := s.Value(); s.Default != nil && err != nil {
		return err
	}
	return checkSettings(s.Block, depth+1, left)
}

// Value returns the default as a string, int64, float64, bool, time.Duration, []string or
// map[string]string, depending on the setting's type; it returns nil if there is no default.
func (s Setting) Value() (any, error) {
	if s.Default == nil {
		return nil, nil
	}
	v, err := s.Type.Decode(s.Default)
	if err != nil {
		return nil, fmt.Errorf("default must be of type %s: %w", s.Type, err)
	}
	return v, nil
}

// Decode decodes the JSON of a value in a manifest into the Go type that Setting.Value returns.
func (t Type) Decode(text json.RawMessage) (any, error) {
	if string(text) == "null" {
		return nil, errors.New("must not be null")
	}
	switch t {
	case TypeString:
		return decode[string](text)
	case TypeInt:
		return decode[int64](text)
	case TypeNumber:
		n, err := decode[float64](text)
		if err == nil && math.IsInf(n, 0) {
			return nil, errors.New("number is too large")
		}
		return n, err
	case TypeBool:
		return decode[bool](text)
	case TypeDuration:
		s, err := decode[string](text)
		if err != nil {
			return nil, err
		}
		return time.ParseDuration(s)
	case TypeStrings:
		return decode[[]string](text)
	case TypeMap:
		return decode[map[string]string](text)
	}
	return nil, fmt.Errorf("%s has no value", t)
}

func decode[T any](text json.RawMessage) (T, error) {
	var v T
	err := json.Unmarshal(text, &v)
	return v, err
}
