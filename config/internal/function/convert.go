package function

import (
	"errors"

	"github.com/zclconf/go-cty/cty"
	"github.com/zclconf/go-cty/cty/function"
	"github.com/zclconf/go-cty/cty/function/stdlib"
)

func conversions() map[string]function.Function {
	return map[string]function.Function{
		"tobool":       stdlib.MakeToFunc(cty.Bool),
		"tolist":       to(cty.List(cty.DynamicPseudoType)),
		"tomap":        to(cty.Map(cty.DynamicPseudoType)),
		"tonumber":     stdlib.MakeToFunc(cty.Number),
		"toset":        to(cty.Set(cty.DynamicPseudoType)),
		"tostring":     stdlib.MakeToFunc(cty.String),
		"one":          define(one, cty.DynamicPseudoType, parameter("list", cty.DynamicPseudoType)),
		"sensitive":    marking(func(v cty.Value) cty.Value { return v.Mark(Sensitive) }),
		"nonsensitive": marking(unmark),
	}
}

// one returns the only element of a collection, or null for an empty one.
func one(args []cty.Value) (cty.Value, error) {
	v, ty := args[0], args[0].Type()
	if !ty.IsListType() && !ty.IsSetType() && !ty.IsTupleType() {
		return cty.NilVal, function.NewArgErrorf(0, "the argument must be a list, a set or a tuple")
	}
	switch v.LengthInt() {
	case 0:
		return cty.NullVal(cty.DynamicPseudoType), nil
	case 1:
		it := v.ElementIterator()
		it.Next()
		_, element := it.Element()
		return element, nil
	}
	return cty.NilVal, function.NewArgErrorf(0, "the list must have at most one element, not %d", v.LengthInt())
}

// index returns the index of the first element that is equal to a value, from 0.
func index(args []cty.Value) (cty.Value, error) {
	if ty := args[0].Type(); !ty.IsListType() && !ty.IsTupleType() {
		return cty.NilVal, function.NewArgErrorf(0, "the first argument must be a list")
	}
	for it := args[0].ElementIterator(); it.Next(); {
		i, element := it.Element()
		if same := element.Equals(args[1]); same.IsKnown() && same.True() {
			return i, nil
		}
	}
	return cty.NilVal, errors.New("the list does not contain the value")
}

func unmark(v cty.Value) cty.Value {
	unmarked, _ := v.Unmark()
	return unmarked
}

func marking(change func(cty.Value) cty.Value) function.Function {
	return function.New(&function.Spec{
		Params: []function.Parameter{{
			Name: "value", Type: cty.DynamicPseudoType,
			AllowUnknown: true, AllowNull: true, AllowMarked: true, AllowDynamicType: true,
		}},
		Type: func(args []cty.Value) (cty.Type, error) { return args[0].Type(), nil },
		Impl: func(args []cty.Value, _ cty.Type) (cty.Value, error) { return change(args[0]), nil },
	})
}
