package config

import (
	"math"
	"reflect"
	"testing"
	"time"

	"github.com/hashicorp/hcl/v2"
	"github.com/hashicorp/hcl/v2/hclsyntax"
	"github.com/zclconf/go-cty/cty"
	"github.com/zclconf/go-cty/cty/convert"

	"github.com/sonde-probe/sonde/config/internal/function"
)

func TestNumbersBecomeTheTextThatHCLMakesOfThem(t *testing.T) {
	for _, v := range []cty.Value{
		cty.Zero, cty.NumberIntVal(8080), cty.NumberIntVal(-5), cty.NumberIntVal(math.MaxInt64), cty.NumberIntVal(math.MinInt64),
		cty.NumberUIntVal(math.MaxUint64), cty.MustParseNumberVal("1e30"), cty.MustParseNumberVal("0.5"), cty.MustParseNumberVal("0.1"),
		cty.MustParseNumberVal("9"), cty.Zero.Multiply(cty.NumberIntVal(-1)), cty.True, cty.StringVal("http"),
	} {
		want, err := convert.Convert(v, cty.String)
		if err != nil {
			t.Fatal(err)
		}
		if got, ok := text(v); !ok || got != want.AsString() {
			t.Errorf("%#v: %q, %v, want %q", v, got, ok, want.AsString())
		}
	}
	for _, v := range []cty.Value{cty.NullVal(cty.Number), cty.EmptyTupleVal} {
		if got, ok := text(v); ok {
			t.Errorf("%#v: %q, want none", v, got)
		}
	}
}

func TestTemplatesConvertNumbersAsHCLDoes(t *testing.T) {
	ctx := &hcl.EvalContext{Variables: map[string]cty.Value{
		"n": cty.MustParseNumberVal("7"), "half": cty.MustParseNumberVal("0.5"), "large": cty.MustParseNumberVal("1e40"), "s": cty.StringVal("x"),
		"null": cty.NullVal(cty.Number), "unknown": cty.UnknownVal(cty.Number), "secret": cty.NumberIntVal(5).Mark(function.Sensitive), "list": cty.EmptyTupleVal,
	}}
	for _, text := range []string{
		`"${n}"`, `"a${n}b${n + 1}c${-n}"`, `"${n / 3}/${half}"`, `"${large}-${large * large}"`, `"-${0 * -1}"`, `"${s}${true}"`, `"<${"${n}-${s}"}>"`,
		`"${null} "`, `"${unknown} "`, `"${secret} "`, `"${list} "`, `"${missing} "`, `"${n.attribute} "`, `"%{ if n > 6 }${n} %{ endif }"`, "<<EOT\n${n} ${s}\nEOT\n",
	} {
		parse := func(prepare bool) (hcl.Expression, cty.Value, hcl.Diagnostics) {
			file, diags := hclsyntax.ParseConfig([]byte("a = "+text+"\n"), "a.hcl", hcl.InitialPos)
			if diags.HasErrors() {
				t.Fatal(diags)
			}
			body := file.Body.(*hclsyntax.Body)
			if prepare {
				convertNumbers(body)
			}
			e := body.Attributes["a"].Expr
			v, diags := e.Value(ctx)
			return e, v, diags
		}
		plain, want, wantDiags := parse(false)
		prepared, got, diags := parse(true)
		if !got.RawEquals(want) || diags.Error() != wantDiags.Error() {
			t.Errorf("%s: %#v, %v, want %#v, %v", text, got, diags, want, wantDiags)
		}
		if !reflect.DeepEqual(prepared.Variables(), plain.Variables()) {
			t.Errorf("%s has the variables %v, want %v", text, prepared.Variables(), plain.Variables())
		}
	}
}

func TestDurationsCanBeDays(t *testing.T) {
	for text, want := range map[string]time.Duration{
		"14d": 14 * 24 * time.Hour, "0d": 0, "90s": 90 * time.Second, "1h30m": 90 * time.Minute, "1d12h": 0, "-1d": 0, "1.5d": 0, "10000d": 0, "d": 0,
	} {
		got, ok := ParseDuration(text)
		if got != want || ok != (want != 0 || text == "0d") {
			t.Errorf("%s: got %v, %v", text, got, ok)
		}
	}
}
