package function

import (
	"fmt"
	"testing"

	"github.com/zclconf/go-cty/cty"
)

// forExpression returns n strings as the tuple that [for …] makes.
func forExpression(n int) cty.Value {
	all := make([]cty.Value, n)
	for i := range all {
		all[i] = cty.StringVal(fmt.Sprintf("web-%06d", i))
	}
	return cty.TupleVal(all)
}

func TestDistinctTypesAreThoseOfTheElementsOnce(t *testing.T) {
	object := cty.ObjectVal(map[string]cty.Value{"a": cty.True})
	for _, test := range []struct {
		name  string
		value cty.Value
		want  int
	}{
		{"100,000 strings", forExpression(100_000), 1},
		{"strings and numbers", cty.TupleVal([]cty.Value{cty.StringVal("a"), cty.NumberIntVal(1), cty.StringVal("b")}), 2},
		{"equal objects", cty.TupleVal([]cty.Value{object, object}), 1},
		{"an object", cty.ObjectVal(map[string]cty.Value{"a": cty.True, "b": cty.False, "c": object}), 2},
		{"an empty tuple", cty.EmptyTupleVal, 0},
		{"a list", cty.ListVal([]cty.Value{cty.True}), 0},
		{"a string", cty.StringVal("a"), 0},
	} {
		if got := distinctTypes(test.value.Type()); len(got) != test.want {
			t.Errorf("%s: %d types, want %d", test.name, len(got), test.want)
		}
	}
}

func TestCollectionsHaveTheCommonTypeOfTheirElements(t *testing.T) {
	a, one := cty.StringVal("a"), cty.NumberIntVal(1)
	mixed := cty.TupleVal([]cty.Value{a, one, a})
	list := cty.ListVal([]cty.Value{a, cty.StringVal("1"), a})
	nested := cty.TupleVal([]cty.Value{cty.TupleVal([]cty.Value{a}), cty.TupleVal([]cty.Value{one, one})})
	object := cty.ObjectVal(map[string]cty.Value{"x": a, "y": one})
	table := Table()
	for _, test := range []struct {
		call string
		args []cty.Value
		want cty.Value
	}{
		{"toset", []cty.Value{mixed}, cty.SetVal([]cty.Value{a, cty.StringVal("1")})},
		{"tolist", []cty.Value{mixed}, list},
		{"tolist", []cty.Value{nested}, cty.ListVal([]cty.Value{cty.ListVal([]cty.Value{a}), cty.ListVal([]cty.Value{cty.StringVal("1"), cty.StringVal("1")})})},
		{"tomap", []cty.Value{object}, cty.MapVal(map[string]cty.Value{"x": a, "y": cty.StringVal("1")})},
		{"toset", []cty.Value{cty.EmptyTupleVal}, cty.SetValEmpty(cty.DynamicPseudoType)},
		{"toset", []cty.Value{list}, cty.SetVal([]cty.Value{a, cty.StringVal("1")})},
		{"toset", []cty.Value{mixed.Mark(Sensitive)}, cty.SetVal([]cty.Value{a, cty.StringVal("1")}).Mark(Sensitive)},
		{"toset", []cty.Value{cty.UnknownVal(cty.Tuple([]cty.Type{cty.String}))}, cty.UnknownVal(cty.Set(cty.DynamicPseudoType)).RefineNotNull()},
		{"distinct", []cty.Value{mixed}, cty.ListVal([]cty.Value{a, cty.StringVal("1")})},
		{"chunklist", []cty.Value{mixed, cty.NumberIntVal(3)}, cty.ListVal([]cty.Value{list})},
		{"setunion", []cty.Value{mixed, cty.TupleVal([]cty.Value{a})}, cty.SetVal([]cty.Value{a, cty.StringVal("1")})},
		{"setsubtract", []cty.Value{mixed, cty.TupleVal([]cty.Value{a})}, cty.SetVal([]cty.Value{cty.StringVal("1")})},
		{"setintersection", []cty.Value{mixed, cty.TupleVal([]cty.Value{a})}, cty.SetVal([]cty.Value{a})},
	} {
		got, err := table[test.call].Call(test.args)
		if err != nil || !got.RawEquals(test.want) && got.IsKnown() {
			t.Errorf("%s(%#v) is %#v, %v; want %#v", test.call, test.args, got, err, test.want)
		}
	}
	odd := cty.TupleVal([]cty.Value{a, cty.EmptyObjectVal})
	for _, call := range []string{"toset", "tolist", "distinct"} {
		if got, err := table[call].Call([]cty.Value{odd}); err == nil {
			t.Errorf("%s of a string and an object is %#v", call, got)
		}
	}
}

func BenchmarkToSetOf100000Elements(b *testing.B) {
	v, toset := forExpression(100_000), Table()["toset"]
	for b.Loop() {
		if _, err := toset.Call([]cty.Value{v}); err != nil {
			b.Fatal(err)
		}
	}
}
