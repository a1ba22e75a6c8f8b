package config_test

import (
	"context"
	"fmt"
	"os"

	"github.com/sonde-probe/sonde/config"
	"github.com/sonde-probe/sonde/probe"
)

// greeter is a handler with a block of its own.
type greeter struct{ text string }

type greeterConfig struct {
	Text string `hcl:"text"`
	Loud bool   `hcl:"loud,optional"`
}

func newGreeter(c greeterConfig) (*greeter, error) {
	if c.Text == "" {
		return nil, &probe.FieldError{Field: "text", Problem: "must not be empty"}
	}
	return &greeter{c.Text}, nil
}

func (g *greeter) Probe(context.Context, probe.Target) probe.Result { return probe.Succeed(g.text) }

func ExampleParse() {
	source := config.Source{Name: "config.hcl", Bytes: []byte(`
target "web" {
  for_each = toset(["a", "b"])
  address  = "${each.key}.example"

  probe "readiness" {
    greet { text = "hello" }
    period = "5s"
  }
}
`)}
	handlers := map[string]config.Handler{"greet": config.Of(newGreeter)}
	c, diags := config.Parse([]config.Source{source}, config.Options{Handlers: handlers})
	if diags.HasErrors() {
		diags.WriteText(os.Stderr, false)
		return
	}
	p := c.Set[probe.ID{Target: `web["a"]`, Kind: probe.Readiness}]
	fmt.Println(len(c.Set), p.Target.Address, p.Rule.Period, p.HandlerName)
	// Output: 2 a.example 5s greet
}

func ExampleDiagnostics_WriteText() {
	source := config.Source{Name: "config.hcl", Bytes: []byte(`
target "web" {
  adress = "10.0.0.7"

  probe "readiness" {
    greet {}
    period = 5
  }
}
`)}
	handlers := map[string]config.Handler{"greet": config.Of(newGreeter)}
	_, diags := config.Parse([]config.Source{source}, config.Options{Handlers: handlers})
	diags.WriteText(os.Stdout, false)
	// Output:
	// error: unknown argument "adress"
	//   config.hcl:3:3, in target "web"
	//     3 |   adress = "10.0.0.7"
	//       |   ^^^^^^
	//   did you mean "address"?
	//
	// error: greet lacks the required argument "text"
	//   config.hcl:6:5, in target "web", probe "readiness", greet
	//     6 |     greet {}
	//       |     ^^^^^
	//   add text = "…"
	//
	// error: period has no unit
	//   config.hcl:7:14, in target "web", probe "readiness"
	//     7 |     period = 5
	//       |              ^
	//   write period = "5s"
}
