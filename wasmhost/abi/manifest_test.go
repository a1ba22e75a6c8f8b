package abi_test

import (
	"encoding/json"
	"reflect"
	"strings"
	"testing"
	"time"

	"github.com/sonde-probe/sonde/wasmhost/abi"
)

func raw(s string) json.RawMessage { return json.RawMessage(s) }

func manifest() abi.Manifest {
	return abi.Manifest{
		Name: "redis", Version: "1.0.0", ABI: 1, SDK: "go 1.0", Doc: "Whether a Redis server answers.",
		Grants: abi.Grants{Dial: []string{"target", "tls://*.internal:6380"}, Env: []string{"TZ"}, DNS: []string{"*.internal"}},
		Settings: []abi.Setting{
			{Name: "port", Type: abi.TypeString, Required: true, Doc: "The port."},
			{Name: "role", Type: abi.TypeString, Default: raw(`"any"`)},
			{Name: "max_lag", Type: abi.TypeDuration, Default: raw(`"1.5s"`)},
			{Name: "db", Type: abi.TypeInt, Default: raw(`9007199254740993`)},
			{Name: "ratio", Type: abi.TypeNumber, Default: raw(`0.5`)},
			{Name: "ping", Type: abi.TypeBool, Default: raw(`true`)},
			{Name: "keys", Type: abi.TypeStrings, Default: raw(`["a","b"]`)},
			{Name: "labels", Type: abi.TypeMap, Default: raw(`{"a":"b"}`)},
			{Name: "password", Type: abi.TypeString, Sensitive: true},
			{Name: "tls", Type: abi.TypeBlock, Block: []abi.Setting{{Name: "server_name", Type: abi.TypeString}}},
		},
	}
}

func TestAManifestSurvivesItsJSON(t *testing.T) {
	text, err := json.Marshal(manifest())
	if err != nil {
		t.Fatal(err)
	}
	got, err := abi.ParseManifest(text)
	if err != nil || !reflect.DeepEqual(got, manifest()) {
		t.Errorf("got %+v, %v", got, err)
	}
}

func TestDefaultsHaveTheirTypes(t *testing.T) {
	want := map[string]any{
		"port": nil, "role": "any", "max_lag": 1500 * time.Millisecond, "db": int64(9007199254740993), "ratio": 0.5,
		"ping": true, "keys": []string{"a", "b"}, "labels": map[string]string{"a": "b"}, "password": nil, "tls": nil,
	}
	for _, s := range manifest().Settings {
		if got, err := s.Value(); err != nil || !reflect.DeepEqual(got, want[s.Name]) {
			t.Errorf("%s: got %#v, %v, want %#v", s.Name, got, err, want[s.Name])
		}
	}
}

func TestUnknownManifestFieldsAreIgnored(t *testing.T) {
	got, err := abi.ParseManifest([]byte(`{"name":"x","abi":1,"licence":"MIT","settings":[{"name":"a","type":"int","unit":"ms"}]}`))
	if err != nil || got.Settings[0].Name != "a" {
		t.Errorf("got %+v, %v", got, err)
	}
}

func TestAManifestIsChecked(t *testing.T) {
	long := strings.Repeat("x", 2000)
	setting := func(s abi.Setting) func(*abi.Manifest) {
		return func(m *abi.Manifest) { m.Settings = []abi.Setting{s} }
	}
	tests := map[string]struct {
		change func(*abi.Manifest)
		want   string // empty if the manifest is valid
	}{
		"nothing":                           {func(*abi.Manifest) {}, ""},
		"another version":                   {func(m *abi.Manifest) { m.ABI = 2 }, "abi is 2"},
		"no name":                           {func(m *abi.Manifest) { m.Name = "" }, "name must not be empty"},
		"a name with a dash":                {func(m *abi.Manifest) { m.Name = "my-redis" }, `name "my-redis"`},
		"a name that is a digit":            {func(m *abi.Manifest) { m.Name = "0" }, `name "0"`},
		"a name too long":                   {func(m *abi.Manifest) { m.Name = long }, "name is 2000 bytes long"},
		"a version with an escape sequence": {func(m *abi.Manifest) { m.Version = "\x1b[31m1" }, "version must be UTF-8"},
		"an SDK too long":                   {func(m *abi.Manifest) { m.SDK = long }, "sdk is 2000 bytes long"},
		"a doc with bidirectional control characters": {func(m *abi.Manifest) { m.Doc = "\u202eabc" }, "doc must be UTF-8"},
		"an empty grant":         {func(m *abi.Manifest) { m.Grants.Dial = []string{""} }, "grants: dial has an empty entry"},
		"a grant too long":       {func(m *abi.Manifest) { m.Grants.DNS = []string{long} }, "grants: an entry of dns is 2000 bytes"},
		"too many grants":        {func(m *abi.Manifest) { m.Grants.Env = make([]string, 65) }, "grants: env has 65 entries"},
		"too many settings":      {func(m *abi.Manifest) { m.Settings = make([]abi.Setting, 257) }, "more than 256 settings"},
		"a setting twice":        {func(m *abi.Manifest) { m.Settings = append(m.Settings, m.Settings[0]) }, `setting 10 ("port") is declared twice`},
		"no type":                {setting(abi.Setting{Name: "a"}), `setting 0 ("a"): type ""`},
		"an unknown type":        {setting(abi.Setting{Name: "a", Type: "integer"}), `type "integer"`},
		"a name that is a block": {setting(abi.Setting{Name: "a.b", Type: abi.TypeInt}), `name "a.b"`},
		"a number for a string":  {setting(abi.Setting{Name: "a", Type: abi.TypeString, Default: raw("1")}), "default must be of type string"},
		"half an int":            {setting(abi.Setting{Name: "a", Type: abi.TypeInt, Default: raw("1.5")}), "default must be of type int"},
		"a duration of numbers":  {setting(abi.Setting{Name: "a", Type: abi.TypeDuration, Default: raw("1")}), "default must be of type duration"},
		"a null":                 {setting(abi.Setting{Name: "a", Type: abi.TypeBool, Default: raw("null")}), "must not be null"},
		"a required default":     {setting(abi.Setting{Name: "a", Type: abi.TypeBool, Default: raw("true"), Required: true}), "is not allowed with required"},
		"a block's default":      {setting(abi.Setting{Name: "a", Type: abi.TypeBlock, Default: raw("{}")}), "is not allowed with a block"},
		"a block in a string":    {setting(abi.Setting{Name: "a", Type: abi.TypeString, Block: make([]abi.Setting, 1)}), "block is not allowed with"},
		"blocks nested too deep": {setting(nested(4)), "more than 3 deep"},
		"the deepest blocks":     {setting(nested(3)), ""},
	}
	for name, test := range tests {
		t.Run(name, func(t *testing.T) {
			m := manifest()
			test.change(&m)
			err := m.Check()
			if (err == nil) != (test.want == "") || err != nil && !strings.Contains(err.Error(), test.want) {
				t.Errorf("got %v, want %q", err, test.want)
			}
		})
	}
}

// nested returns a setting inside n blocks.
func nested(n int) abi.Setting {
	if n == 0 {
		return abi.Setting{Name: "leaf", Type: abi.TypeInt}
	}
	return abi.Setting{Name: "block", Type: abi.TypeBlock, Block: []abi.Setting{nested(n - 1)}}
}

func TestInvalidManifestJSONIsRejected(t *testing.T) {
	for text, want := range map[string]string{
		"":                            "manifest: EOF",
		"[]":                          "cannot unmarshal",
		`{"name":"a","abi":1} {}`:     "unexpected text after",
		strings.Repeat(" ", 1+64<<10): "is 65537 bytes long",
		strings.Repeat("[", 63):       "manifest:",
	} {
		if _, err := abi.ParseManifest([]byte(text)); err == nil || !strings.Contains(err.Error(), want) {
			t.Errorf("%.40q: got %v, want %q", text, err, want)
		}
	}
}

func FuzzParseManifest(f *testing.F) {
	text, _ := json.Marshal(manifest())
	f.Add(text)
	f.Add([]byte(`{"name":"a","abi":1,"settings":[{"name":"b","type":"block","block":[]}]}`))
	f.Fuzz(func(t *testing.T, text []byte) {
		m, err := abi.ParseManifest(text)
		if err != nil {
			return
		}
		again, err := json.Marshal(m)
		if err != nil {
			t.Fatal(err)
		}
		if len(again) > abi.MaxManifest {
			return // escaping makes it too large
		}
		if _, err := abi.ParseManifest(again); err != nil {
			t.Errorf("%s is good, and %s is not: %v", text, again, err)
		}
	})
}
