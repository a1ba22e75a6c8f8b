package config

import (
	"errors"
	"fmt"
	"path/filepath"
	"reflect"
	"strings"
	"testing"
	"time"

	"github.com/sonde-probe/sonde/probe"
)

// testSum is the hash of each plugin of the tests.
const testSum = "00112233445566778899aabbccddeeff00112233445566778899aabbccddeeff"

// testPlugin loads the files grpc.wasm, strange.wasm and greedy.wasm.
func testPlugin(_ Engine, p Plugin) (string, func() (Handler, error), error) {
	var h Handler
	var err error
	switch filepath.Base(p.Source) {
	case "grpc.wasm":
		h = grpcHandler()
	case "strange.wasm":
		err = errors.New("strange.wasm is not made for Sonde: no section sonde.plugin")
	case "greedy.wasm":
		err = &probe.FieldError{Field: "limits.memory", Problem: "is too small: the module needs 64MiB to start"}
	default:
		return "", nil, &probe.FieldError{Field: "source", Problem: "cannot be read: there is no such file"}
	}
	return testSum, func() (Handler, error) { return h, err }, nil
}

// grpcHandler has a field of each kind that a plugin can declare.
func grpcHandler() Handler {
	tls := Schema{Fields: []Field{{Name: "server_name", Type: String}, {Name: "verify", Type: Bool, Default: true}}}
	login := Schema{Fields: []Field{{Name: "user", Type: String, Required: true}, {Name: "password", Type: String, Sensitive: true}}}
	return Handler{
		Revision: "manifest",
		Schema: Schema{Fields: []Field{
			{Name: "port", Type: String, Required: true},
			{Name: "service", Type: String},
			{Name: "metadata", Type: StringMap},
			{Name: "wait", Type: Duration, Default: 2 * time.Second},
			{Name: "tls", Type: Block, Block: &tls},
			{Name: "login", Type: Block, Block: &login},
		}},
		Make: func(v Values, _ Context) (probe.Handler, error) {
			if v["service"] == "forbidden" {
				return nil, &probe.FieldError{Field: "service", Problem: "is not one that can be asked for"}
			}
			port, _ := v["port"].(string)
			return &fake{config: v, port: port}, nil
		},
	}
}

// pluginHeader is the start of configurations with a plugin's handler block.
const pluginHeader = `
plugin "grpc" {
  source         = "grpc.wasm"
  allow_unpinned = true
}
target "shop" {
  address = "10.0.0.7"
  ports   = { grpc = 9000 }
`

func TestPluginsAddHandlerBlocks(t *testing.T) {
	c := parseGood(t, pluginHeader+`
  probe "liveness" {
    grpc {
      port     = "grpc"
      metadata = { a = "b" }
      tls { server_name = "shop" }
    }
  }
}`, Options{Plugin: testPlugin})
	p := c.Set[probe.ID{Target: "shop", Kind: probe.Liveness}]
	want := Values{
		"port": "grpc", "metadata": map[string]string{"a": "b"}, "wait": 2 * time.Second,
		"tls": Values{"server_name": "shop", "verify": true},
	}
	if p.HandlerName != "grpc" || !reflect.DeepEqual(p.Handler.(*fake).config, want) {
		t.Errorf("the probe is %+v with %#v", p, p.Handler.(*fake).config)
	}
}

func TestPluginBlocksAreDecoded(t *testing.T) {
	c := parseGood(t, `
plugin "grpc" {
  source  = "plugins/grpc.wasm"
  sha256  = "`+strings.ToUpper(testSum)+`"
  on_trap = "failure"
  grant {
    dial = []
    env  = ["TOKEN"]
    dns  = ["*.internal"]
  }
  limits {
    memory      = "64MiB"
    module_size = "1GiB"
    instances   = 8
    bytes_in    = "100B"
    start       = "1m"
  }
}`, Options{Plugin: testPlugin})
	want := Plugin{
		Name: "grpc", Source: filepath.Join("plugins", "grpc.wasm"), SHA256: strings.ToUpper(testSum),
		Settings: pluginConfig{
			OnTrap: probe.Failure,
			Grant:  grantConfig{Dial: []string{}, Env: []string{"TOKEN"}, DNS: []string{"*.internal"}},
			Limits: limitsConfig{Memory: 64 << 20, ModuleSize: 1 << 30, Instances: 8, BytesIn: 100, Start: time.Minute},
		},
	}
	if got := c.Plugins["grpc"]; !reflect.DeepEqual(got, want) {
		t.Errorf("the plugin is\n%#v, not\n%#v", got, want)
	}
}

func TestRelativeSourcesStartAtTheFolderOfTheirFile(t *testing.T) {
	var got []string
	o := Options{Plugin: func(e Engine, p Plugin) (string, func() (Handler, error), error) {
		got = append(got, filepath.ToSlash(p.Source))
		return testPlugin(e, p)
	}}
	Parse([]Source{
		{"/etc/sonde/a.hcl", []byte(`plugin "a" { source = "../lib/grpc.wasm" }`)},
		{"conf/b.hcl.json", []byte(`{"plugin": {"b": {"source": "grpc.wasm"}}}`)},
		{"c.hcl", []byte(`plugin "c" { source = "/opt/grpc.wasm" }`)},
	}, o)
	if want := []string{"/etc/lib/grpc.wasm", "conf/grpc.wasm", "/opt/grpc.wasm"}; !reflect.DeepEqual(got, want) {
		t.Errorf("the files are %q, not %q", got, want)
	}
}

func TestModulesOutsideTheConfigurationsFolderNeedAHash(t *testing.T) {
	cases := map[string]string{ // by source: the severity, empty for no diagnostic
		"grpc.wasm":               "warning",
		"plugins/grpc.wasm":       "warning",
		"/etc/sonde/a/grpc.wasm":  "warning",
		"../grpc.wasm":            "error",
		"a/../../sonde/grpc.wasm": "warning",
		"/opt/grpc.wasm":          "error",
	}
	for source, want := range cases {
		text := fmt.Sprintf(`plugin "grpc" { source = %q }`, source)
		_, diags := Parse([]Source{{"/etc/sonde/config.hcl", []byte(text)}}, Options{Plugin: testPlugin})
		if len(diags) != 1 || diags[0].word() != want || !strings.Contains(diags[0].Hint, testSum) {
			t.Errorf("%s: %v, want one %s that says what to write", source, diags, want)
		}
	}
}

func TestRevisionsChangeWithTheModule(t *testing.T) {
	revision := func(sum, manifest string) string {
		o := Options{Plugin: func(Engine, Plugin) (string, func() (Handler, error), error) {
			h := grpcHandler()
			h.Revision = manifest
			return sum, func() (Handler, error) { return h, nil }, nil
		}}
		c := parseGood(t, pluginHeader+"probe \"liveness\" {\n grpc { port = 1 }\n }\n }\n", o)
		return c.Set[probe.ID{Target: "shop", Kind: probe.Liveness}].Revision
	}
	first := revision("aa", "x")
	if revision("aa", "x") != first || revision("bb", "x") == first || revision("aa", "y") == first {
		t.Error("a revision does not follow its module")
	}
}

func TestModulesThatAreNotPinnedAreNotLoaded(t *testing.T) {
	o := Options{Plugin: func(Engine, Plugin) (string, func() (Handler, error), error) {
		return testSum, func() (Handler, error) {
			t.Error("it was loaded")
			return Handler{}, nil
		}, nil
	}}
	for _, text := range []string{
		`plugin "a" { source = "/elsewhere/a.wasm" }`,
		`plugin "a" {
			source = "a.wasm"
			sha256 = "` + strings.Repeat("0", 64) + `"
		}`,
	} {
		if _, diags := parse(t, text, o); !diags.HasErrors() {
			t.Errorf("%s: there is no error", text)
		}
	}
}

func TestPluginsAreRejectedWithoutALoader(t *testing.T) {
	_, diags := parse(t, `plugin "grpc" { source = "grpc.wasm" }`, Options{})
	if err := diags.Err(); err == nil || !strings.Contains(err.Error(), "plugins cannot be used here") {
		t.Errorf("the error is %v", err)
	}
}
