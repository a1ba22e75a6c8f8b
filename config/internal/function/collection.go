package function

import (
	"maps"
	"slices"

	"github.com/zclconf/go-cty/cty"
	"github.com/zclconf/go-cty/cty/convert"
	"github.com/zclconf/go-cty/cty/function"
	"github.com/zclconf/go-cty/cty/function/stdlib"
)

// A list in brackets, or made by [for …], is a tuple, which has a type for each element.
// When cty converts it to a collection of any one type, it compares each type with each
// other: with 100,000 elements that takes minutes. The functions here compare the distinct
// types only, of which there is nearly always one.

// to returns a function that converts its argument to a collection of one type.
func to(collection func(cty.Type) cty.Type) function.Function {
	f := stdlib.MakeToFunc(collection(cty.DynamicPseudoType))
	return function.New(&function.Spec{
		Params: f.Params(),
		Type: func(args []cty.Value) (cty.Type, error) {
			return f.ReturnType([]cty.Type{reduced(args[0].Type())})
		},
		Impl: func(args []cty.Value, _ cty.Type) (cty.Value, error) {
			v, err := asCollection(args[0], collection)
			if err != nil {
				want := collection(cty.DynamicPseudoType).FriendlyNameForConstraint()
				return cty.NilVal, function.NewArgErrorf(0, "cannot convert %s to %s", args[0].Type().FriendlyName(), want)
			}
			return v, nil
		},
	})
}

// unifying returns f with parameters for any value instead of those for a collection of
// any one type, to which it converts the arguments itself.
func unifying(f function.Function) function.Function {
	params, variadic := f.Params(), f.VarParam()
	convertAll := func(args []cty.Value) ([]cty.Value, error) {
		args = slices.Clone(args)
		for i := range args {
			p := variadic
			if i < len(params) {
				p = &params[i]
			}
			collection := collectionOf(p.Type)
			if collection == nil {
				continue
			}
			v, err := asCollection(args[i], collection)
			if err != nil {
				return nil, function.NewArgError(i, err)
			}
			args[i] = v
		}
		return args, nil
	}
	loose := variadic
	if loose != nil {
		loose = &loosened(*variadic)[0]
	}
	return function.New(&function.Spec{
		Params:   loosened(params...),
		VarParam: loose,
		Type: func(args []cty.Value) (cty.Type, error) {
			args, err := convertAll(args)
			if err != nil {
				return cty.NilType, err
			}
			return f.ReturnTypeForValues(args)
		},
		Impl: func(args []cty.Value, _ cty.Type) (cty.Value, error) {
			args, err := convertAll(args)
			if err != nil {
				return cty.NilVal, err
			}
			return f.Call(args)
		},
	})
}

// loosened returns the parameters with those for a collection of any one type as
// parameters for any value.
func loosened(params ...function.Parameter) []function.Parameter {
	params = slices.Clone(params)
	for i := range params {
		if collectionOf(params[i].Type) != nil {
			params[i].Type = cty.DynamicPseudoType
		}
	}
	return params
}

// collectionOf returns the constructor of a type of collections of any one type; nil for
// other types.
func collectionOf(t cty.Type) func(cty.Type) cty.Type {
	switch {
	case !t.IsCollectionType() || t.ElementType() != cty.DynamicPseudoType:
		return nil
	case t.IsListType():
		return cty.List
	case t.IsSetType():
		return cty.Set
	}
	return cty.Map
}

// asCollection converts a value to a collection of one type.
func asCollection(v cty.Value, collection func(cty.Type) cty.Type) (cty.Value, error) {
	element := cty.DynamicPseudoType
	if types := distinctTypes(v.Type()); len(types) > 0 {
		if common, _ := convert.UnifyUnsafe(types); common != cty.NilType {
			element = common
		} else {
			v = cty.UnknownVal(reduced(v.Type())) // for a short way to the error
		}
	}
	return convert.Convert(v, collection(element))
}

// reduced returns a tuple type with the distinct types of a tuple or an object instead
// of all. It returns other types as they are.
func reduced(t cty.Type) cty.Type {
	types := distinctTypes(t)
	switch {
	case types == nil:
		return t
	case t.IsTupleType():
		return cty.Tuple(types)
	}
	few := make(map[string]cty.Type, len(types))
	for name, attribute := range t.AttributeTypes() {
		if i := indexOf(types, attribute); i >= 0 {
			few[name] = attribute
			types = slices.Delete(types, i, i+1)
		}
	}
	return cty.Object(few)
}

// distinctTypes returns the types of the elements of a tuple, or of an object's
// attributes, each once. It returns nil for other types.
func distinctTypes(t cty.Type) []cty.Type {
	var some []cty.Type
	switch {
	case t.IsTupleType():
		for _, element := range t.TupleElementTypes() {
			some = appendNew(some, element)
		}
	case t.IsObjectType():
		attributes := t.AttributeTypes()
		for _, name := range slices.Sorted(maps.Keys(attributes)) {
			some = appendNew(some, attributes[name])
		}
	}
	return some
}

func appendNew(types []cty.Type, t cty.Type) []cty.Type {
	if indexOf(types, t) >= 0 {
		return types
	}
	return append(types, t)
}

func indexOf(types []cty.Type, t cty.Type) int { return slices.IndexFunc(types, t.Equals) }
