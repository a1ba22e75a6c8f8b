package handlers

import (
	"fmt"
	"slices"
	"strings"
	"testing"

	"github.com/sonde-probe/sonde/cmd/engine/internal/embedded"
	"github.com/sonde-probe/sonde/config"
	"github.com/sonde-probe/sonde/probe"
	"github.com/sonde-probe/sonde/wasmhost/abi"
)

// builtGRPC returns the built-in plugin.
func builtGRPC(t *testing.T) []byte {
	t.Helper()
	module, err := embedded.GRPC()
	if err != nil {
		t.Skip("the plugin has not been built: make build")
	}
	return module
}

func TestTheBuiltInPluginHasTheSettingsOfGRPCBlocks(t *testing.T) {
	m, err := abi.ReadManifest(builtGRPC(t))
	if err != nil {
		t.Fatal(err)
	}
	if got, want := fieldsOf(schema(m.Doc, m.Settings)), fieldsOf(grpcSchema); !slices.Equal(got, want) {
		t.Errorf("the plugin has\n%q\nwant\n%q", got, want)
	}
}

// fieldsOf returns the fields of a schema and of its blocks. The plugin describes the defaults in its documentation.
func fieldsOf(s config.Schema) (all []string) {
	for _, f := range s.Fields {
		doc := f.Doc
		if f.Unset != "" && f.Unset != "none" {
			doc += "; default: " + f.Unset
		}
		all = append(all, fmt.Sprint(f.Name, f.Type, f.Required, f.Sensitive, f.Default, doc))
		if f.Block != nil {
			all = append(all, fieldsOf(*f.Block)...)
		}
	}
	return all
}

const withGRPC = `
target "shop" {
  address = "127.0.0.1"
  probe "readiness" {
    grpc { port = 9000 }
  }
}
`

func TestGRPCProbesNeedNoPluginBlock(t *testing.T) {
	builtGRPC(t)
	p := NewPlugins(t.Context(), WaitForNone, Silent)
	defer p.Close()
	c, diags := new(Inputs).Parse([]config.Source{{Name: "c.hcl", Bytes: []byte(withGRPC)}}, nil, p)
	if err := diags.Err(); err != nil {
		t.Fatal(err)
	}
	made := c.Set[probe.ID{Target: "shop", Kind: probe.Readiness}]
	if made.HandlerName != "grpc" || made.Revision == "" || len(p.loaded) != 1 {
		t.Errorf("the probe is %+v, with %d plugins", made, len(p.loaded))
	}
	without := NewPlugins(t.Context(), WaitForNone, Silent)
	if _, diags := new(Inputs).Parse([]config.Source{{Name: "c.hcl", Bytes: []byte(strings.Replace(withGRPC, "grpc", "tcp", 1))}}, nil, without); diags.HasErrors() || len(without.loaded) != 0 {
		t.Errorf("a configuration without grpc loads %d plugins: %v", len(without.loaded), diags.Err())
	}
}

// A plugin block takes precedence over the built-in plugin, here with another grant.
func TestAPluginBlockGoesBeforeTheBuiltInPlugin(t *testing.T) {
	p := NewPlugins(t.Context(), WaitForNone, Silent)
	text := "plugin \"grpc\" {\n  source = \"none.wasm\"\n}\n" + withGRPC
	_, diags := new(Inputs).Parse([]config.Source{{Name: "c.hcl", Bytes: []byte(text)}}, nil, p)
	if err := diags.Err(); err == nil || !strings.Contains(err.Error(), "none.wasm") || len(p.loaded) != 0 {
		t.Errorf("the error is %v, with %d plugins", err, len(p.loaded))
	}
}

func TestGRPCWithoutThePluginSaysHowToGetIt(t *testing.T) {
	o := Options()
	h := o.Handlers["grpc"]
	h.Load = func(config.Engine) (config.Handler, error) { return config.Handler{}, embedded.ErrNoGRPC }
	o.Handlers["grpc"] = h
	text := withGRPC + strings.Replace(withGRPC, "shop", "other", 1)
	_, diags := config.Parse([]config.Source{{Name: "c.hcl", Bytes: []byte(text)}}, o)
	if err := diags.Err(); err == nil || strings.Count(err.Error(), "grpc cannot be used: "+embedded.ErrNoGRPC.Error()) != 1 {
		t.Errorf("the errors are %v", err)
	}
}
