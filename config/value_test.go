package config

import (
	"math"
	"testing"

	"github.com/zclconf/go-cty/cty"
	"github.com/zclconf/go-cty/cty/convert"
)

func TestNumbersBecomeTheTextThatHCLMakesOfThem(t *testing.T) {
	for _, v := range []cty.Value{
		cty.Zero, cty.NumberIntVal(8080), cty.NumberIntVal(-5), cty.NumberIntVal(math.MaxInt64), cty.NumberIntVal(math.MinInt64),
		cty.NumberUIntVal(math.MaxUint64), cty.MustParseNumberVal("1e30"), cty.MustParseNumberVal("0.5"), cty.MustParseNumberVal("0.1"),
		cty.MustParseNumberVal("9"), cty.True, cty.StringVal("http"),
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
