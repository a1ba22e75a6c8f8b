package function

import (
	"errors"
	"maps"
	"slices"

	"github.com/zclconf/go-cty/cty"
	"github.com/zclconf/go-cty/cty/convert"
	"github.com/zclconf/go-cty/cty/function"
)

// A list in brackets, or made by [for …], is a tuple, which has a type for each element.
// When cty converts it to a collection of any one type, it compares each type with each
// other: with 100,000 elements that takes minutes. The functions here compare the distinct
// types only, of which there is nearly always one.

// to returns a function that converts its argument to a collection of any one type.
func to(collection cty.Type) function.Function {
	return function.New(&function.Spec{
		Params: []function.Parameter{{Name: "v", Type: cty.DynamicPseudoType, AllowNull: true}},
		Type:   function.StaticReturnType(cty.DynamicPseudoType),
		Impl: func(args []cty.Value, _ cty.Type) (cty.Value, error) {
			v, err := collect(args[0], collection)
			if err != nil {
				return cty.NilVal, function.NewArgErrorf(0, "cannot convert %s to %s", args[0].Type().FriendlyName(), collection.FriendlyNameForConstraint())
			}
			return v, nil
		},
	})
}

// collecting returns f with parameters for any value instead of those for a collection of
// any one type, to which it converts the arguments itself. Further arguments are like the last parameter.
func collecting(f function.Function) function.Function {
	declared, loose, others := f.Params(), f.Params(), f.VarParam()
	for i := range loose {
		if loose[i].Type.IsCollectionType() {
			loose[i].Type = cty.DynamicPseudoType
		}
	}
	if others != nil {
		others.Type = cty.DynamicPseudoType
	}
	return function.New(&function.Spec{
		Params: loose, VarParam: others, Type: function.StaticReturnType(cty.DynamicPseudoType),
		Impl: func(args []cty.Value, _ cty.Type) (cty.Value, error) {
			collected := make([]cty.Value, len(args))
			for i, arg := range args {
				v, err := collect(arg, declared[min(i, len(declared)-1)].Type)
				if err != nil {
					return cty.NilVal, function.NewArgError(i, err)
				}
				collected[i] = v
			}
			return f.Call(collected)
		},
	})
}

// collect converts a value to a type. For a collection of any one type it finds the type of the elements.
func collect(v cty.Value, t cty.Type) (cty.Value, error) {
	types := distinctTypes(v.Type())
	if len(types) == 0 || !t.IsCollectionType() {
		return convert.Convert(v, t)
	}
	element, _ := convert.UnifyUnsafe(types)
	switch {
	case element == cty.NilType:
		return cty.NilVal, errors.New("all elements must have the same type")
	case t.IsListType():
		t = cty.List(element)
	case t.IsSetType():
		t = cty.Set(element)
	default:
		t = cty.Map(element)
	}
	return convert.Convert(v, t)
}

// distinctTypes returns the types of the elements of a tuple, or of an object's
// attributes, each once. It returns nil for other types.
func distinctTypes(t cty.Type) (distinct []cty.Type) {
	var all []cty.Type
	switch {
	case t.IsTupleType():
		all = t.TupleElementTypes()
	case t.IsObjectType():
		attributes := t.AttributeTypes()
		for _, name := range slices.Sorted(maps.Keys(attributes)) {
			all = append(all, attributes[name])
		}
	}
	for _, one := range all {
		if !slices.ContainsFunc(distinct, one.Equals) {
			distinct = append(distinct, one)
		}
	}
	return distinct
}
