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

// Manifest says what a plugin is and which settings its handler block takes. Fields
// of its JSON that are not known are skipped, so that later versions can add some.
type Manifest struct {
	Name     string    `json:"name"`               // what it is called: letters a-z, digits, underscores; required
	Version  string    `json:"version,omitempty"`  // of the plugin, as "1.4.2"
	ABI      int       `json:"abi"`                // of this contract: 1; required
	SDK      string    `json:"sdk,omitempty"`      // what it was made with, as "go 1.0"
	Doc      string    `json:"doc,omitempty"`      // one sentence: what it probes
	Grants   Grants    `json:"grants,omitzero"`    // what it would like to be granted; shown to the operator, never given by itself
	Settings []Setting `json:"settings,omitempty"` // in the order in which they are shown
}

// Grants are what a plugin may reach, in the language of a grant block:
// "target", "tcp://10.0.0.0/8:6379", "tls://*.internal:6380".
type Grants struct {
	Dial []string `json:"dial,omitempty"` // where it connects to
	Env  []string `json:"env,omitempty"`  // names of the engine's environment variables
	DNS  []string `json:"dns,omitempty"`  // host names that it looks up by itself
}

// Setting is one argument, or one block, of a plugin's handler block.
type Setting struct {
	Name      string          `json:"name"` // letters a-z, digits, underscores; required
	Type      Type            `json:"type"` // required
	Required  bool            `json:"required,omitempty"`
	Default   json.RawMessage `json:"default,omitempty"`   // of the setting's type, a duration as "1.5s"; not for blocks
	Sensitive bool            `json:"sensitive,omitempty"` // its value is never shown
	Doc       string          `json:"doc,omitempty"`       // one sentence: meaning, unit, range
	Block     []Setting       `json:"block,omitempty"`     // what is inside, for TypeBlock
}

// Type is what a setting holds.
type Type string

// The types of settings. InputSettings has them as JSON.
const (
	TypeString   Type = "string"
	TypeInt      Type = "int"      // a whole number of 64 bits
	TypeNumber   Type = "number"   // a floating-point number of 64 bits
	TypeBool     Type = "bool"     //
	TypeDuration Type = "duration" // written "1.5s"; InputSettings has nanoseconds
	TypeStrings  Type = "list(string)"
	TypeMap      Type = "map(string)"
	TypeBlock    Type = "block" // a block, at most one; an object in JSON
)

// Types returns all types.
func Types() []Type {
	return []Type{TypeString, TypeInt, TypeNumber, TypeBool, TypeDuration, TypeStrings, TypeMap, TypeBlock}
}

// Bounds of a manifest.
const (
	MaxManifest = 64 << 10 // bytes of its JSON
	MaxName     = 63       // bytes of a plugin's or a setting's name
	MaxVersion  = 63       // bytes of Version, and of SDK
	MaxDoc      = 1 << 10  // bytes of each Doc
	MaxSettings = 256      // settings, with those in blocks
	MaxDepth    = 3        // of blocks in blocks
	MaxGrants   = 64       // of each kind
	MaxGrant    = 512      // bytes of each
)

// ParseManifest reads the JSON of a manifest and checks it.
func ParseManifest(text []byte) (Manifest, error) {
	if len(text) > MaxManifest {
		return Manifest{}, fmt.Errorf("manifest: it is %d bytes long, at most %d are allowed", len(text), MaxManifest)
	}
	var m Manifest
	d := json.NewDecoder(bytes.NewReader(text))
	if err := d.Decode(&m); err != nil {
		return Manifest{}, fmt.Errorf("manifest: %w", err)
	}
	if _, err := d.Token(); !errors.Is(err, io.EOF) {
		return Manifest{}, errors.New("manifest: something stands behind it")
	}
	return m, m.Check()
}

func (m Manifest) encode() ([]byte, error) {
	if err := m.Check(); err != nil {
		return nil, err
	}
	text, err := json.Marshal(m)
	if err == nil && len(text) > MaxManifest {
		err = fmt.Errorf("manifest: it is %d bytes long, at most %d are allowed", len(text), MaxManifest)
	}
	return text, err
}

// Check says what is wrong with a manifest, by the field's name, or nil.
func (m Manifest) Check() error {
	if err := m.check(); err != nil {
		return fmt.Errorf("manifest: %w", err)
	}
	return nil
}

func (m Manifest) check() error {
	if m.ABI != Version {
		return fmt.Errorf("abi is %d, this host knows %d", m.ABI, Version)
	}
	if err := checkName(m.Name); err != nil {
		return err
	}
	for field, text := range map[string]string{"version": m.Version, "sdk": m.SDK} {
		if err := checkText(text, MaxVersion); err != nil {
			return fmt.Errorf("%s %w", field, err)
		}
	}
	if err := checkText(m.Doc, MaxDoc); err != nil {
		return fmt.Errorf("doc %w", err)
	}
	if err := m.Grants.check(); err != nil {
		return fmt.Errorf("grants: %w", err)
	}
	left := MaxSettings
	return checkSettings(m.Settings, 0, &left)
}

// checkName says what is wrong with the name of a plugin or a setting.
func checkName(s string) error {
	switch {
	case s == "":
		return errors.New("name must not be empty")
	case len(s) > MaxName:
		return fmt.Errorf("name is %d bytes long, at most %d are allowed", len(s), MaxName)
	case s[0] < 'a' || s[0] > 'z' || strings.Trim(s, "abcdefghijklmnopqrstuvwxyz0123456789_") != "":
		return fmt.Errorf("name is %.80q, it must be a letter a-z, then letters, digits or underscores", s)
	}
	return nil
}

// checkText says what is wrong with a text that people will see, in words that
// follow its name.
func checkText(s string, most int) error {
	switch {
	case len(s) > most:
		return fmt.Errorf("is %d bytes long, at most %d are allowed", len(s), most)
	case !utf8.ValidString(s) || strings.ContainsFunc(s, unsightly):
		return errors.New("must be UTF-8 without control characters")
	}
	return nil
}

// unsightly reports what a terminal would act on, or what turns the direction of
// writing.
func unsightly(r rune) bool {
	return unicode.IsControl(r) || r == '\u2028' || r == '\u2029' || unicode.Is(unicode.Bidi_Control, r)
}

func (g Grants) check() error {
	for field, list := range map[string][]string{"dial": g.Dial, "env": g.Env, "dns": g.DNS} {
		if len(list) > MaxGrants {
			return fmt.Errorf("%s has %d entries, at most %d are allowed", field, len(list), MaxGrants)
		}
		for _, grant := range list {
			if grant == "" {
				return fmt.Errorf("%s has an empty entry", field)
			}
			if err := checkText(grant, MaxGrant); err != nil {
				return fmt.Errorf("an entry of %s %w", field, err)
			}
		}
	}
	return nil
}

// checkSettings checks the settings of one block and those inside; left is how
// many there may still be.
func checkSettings(settings []Setting, depth int, left *int) error {
	if *left -= len(settings); *left < 0 {
		return fmt.Errorf("there are more than %d settings", MaxSettings)
	}
	if depth > MaxDepth && len(settings) > 0 {
		return fmt.Errorf("blocks stand in blocks more than %d deep", MaxDepth)
	}
	seen := make(map[string]bool)
	for i, s := range settings {
		if err := s.check(depth, left); err != nil {
			return fmt.Errorf("setting %d (%.80q): %w", i, s.Name, err)
		}
		if seen[s.Name] {
			return fmt.Errorf("setting %d (%q) is there twice", i, s.Name)
		}
		seen[s.Name] = true
	}
	return nil
}

func (s Setting) check(depth int, left *int) error {
	if err := checkName(s.Name); err != nil {
		return err
	}
	if err := checkText(s.Doc, MaxDoc); err != nil {
		return fmt.Errorf("doc %w", err)
	}
	isBlock := s.Type == TypeBlock
	switch {
	case !slices.Contains(Types(), s.Type):
		return fmt.Errorf("type is %.40q, it must be one of %v", s.Type, Types())
	case !isBlock && len(s.Block) > 0:
		return fmt.Errorf("block does not go with the type %s", s.Type)
	case s.Default != nil && s.Required:
		return errors.New("default does not go with required")
	case s.Default != nil && isBlock:
		return errors.New("default does not go with a block")
	}
	if _, err := s.Value(); s.Default != nil && err != nil {
		return err
	}
	return checkSettings(s.Block, depth+1, left)
}

// Value returns the default: nil when there is none, else a string, int64, float64,
// bool, time.Duration, []string or map[string]string by the setting's type.
func (s Setting) Value() (any, error) {
	if s.Default == nil {
		return nil, nil
	}
	v, err := s.Type.decode(s.Default)
	if err != nil {
		return nil, fmt.Errorf("default must be of type %s: %w", s.Type, err)
	}
	return v, nil
}

func (t Type) decode(text json.RawMessage) (any, error) {
	if string(text) == "null" {
		return nil, errors.New("it is null")
	}
	switch t {
	case TypeString:
		return decode[string](text)
	case TypeInt:
		return decode[int64](text)
	case TypeNumber:
		n, err := decode[float64](text)
		if err == nil && math.IsInf(n, 0) {
			return nil, errors.New("it is too large")
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
	return nil, errors.New("a block has none")
}

func decode[T any](text json.RawMessage) (T, error) {
	var v T
	err := json.Unmarshal(text, &v)
	return v, err
}
