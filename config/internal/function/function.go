// Package function provides the functions that a configuration can call.
//
// Most are those of cty's standard library, under their names in Terraform. Only the
// functions of Reader read files and the environment.
//
//	function.go   the functions of cty, with bounds on their results
//	collection.go conversions to lists, sets and maps, in linear time
//	convert.go    other conversions of types, sensitive and nonsensitive
//	text.go       encodings and hashes
//	network.go    addresses and networks
//	reader.go     files and the environment
package function

import (
	"fmt"
	"maps"
	"regexp"

	"github.com/hashicorp/hcl/v2/ext/tryfunc"
	yaml "github.com/zclconf/go-cty-yaml"
	"github.com/zclconf/go-cty/cty"
	"github.com/zclconf/go-cty/cty/function"
	"github.com/zclconf/go-cty/cty/function/stdlib"
)

// Bounds on the result of one call. cty itself bounds range to 1,024 elements.
const (
	maxProduct  = 100_000 // elements of a setproduct
	maxWidth    = 9_999   // width and precision in a format
	maxFileSize = 1 << 20 // bytes of a file that a configuration reads
)

// Sensitive is the mark of a value that must not be shown.
const Sensitive mark = "sensitive"

type mark string

// Table returns the functions whose results depend only on their arguments, in a new
// map.
func Table() map[string]function.Function {
	t := standard()
	maps.Copy(t, conversions())
	maps.Copy(t, texts())
	t["cidrhost"] = define(cidrHost, cty.String, parameter("prefix", cty.String), parameter("number", cty.Number))
	t["cidrsubnet"] = define(cidrSubnet, cty.String, parameter("prefix", cty.String), parameter("bits", cty.Number), parameter("number", cty.Number))
	return t
}

func standard() map[string]function.Function {
	return map[string]function.Function{
		"abs":             stdlib.AbsoluteFunc,
		"ceil":            stdlib.CeilFunc,
		"floor":           stdlib.FloorFunc,
		"log":             stdlib.LogFunc,
		"max":             stdlib.MaxFunc,
		"min":             stdlib.MinFunc,
		"parseint":        stdlib.ParseIntFunc,
		"pow":             stdlib.PowFunc,
		"signum":          stdlib.SignumFunc,
		"chunklist":       collecting(stdlib.ChunklistFunc),
		"coalesce":        stdlib.CoalesceFunc,
		"coalescelist":    stdlib.CoalesceListFunc,
		"compact":         stdlib.CompactFunc,
		"concat":          stdlib.ConcatFunc,
		"contains":        stdlib.ContainsFunc,
		"distinct":        collecting(stdlib.DistinctFunc),
		"element":         stdlib.ElementFunc,
		"flatten":         stdlib.FlattenFunc,
		"index":           define(index, cty.Number, parameter("list", cty.DynamicPseudoType), parameter("value", cty.DynamicPseudoType)),
		"keys":            stdlib.KeysFunc,
		"length":          stdlib.LengthFunc,
		"lookup":          stdlib.LookupFunc,
		"merge":           stdlib.MergeFunc,
		"range":           stdlib.RangeFunc,
		"reverse":         stdlib.ReverseListFunc,
		"setintersection": collecting(stdlib.SetIntersectionFunc),
		"setproduct":      guarded(stdlib.SetProductFunc, checkProduct),
		"setsubtract":     collecting(stdlib.SetSubtractFunc),
		"setunion":        collecting(stdlib.SetUnionFunc),
		"slice":           stdlib.SliceFunc,
		"sort":            stdlib.SortFunc,
		"values":          stdlib.ValuesFunc,
		"zipmap":          stdlib.ZipmapFunc,
		"chomp":           stdlib.ChompFunc,
		"format":          guarded(stdlib.FormatFunc, checkFormat),
		"formatlist":      guarded(stdlib.FormatListFunc, checkFormat),
		"formatdate":      stdlib.FormatDateFunc,
		"indent":          guarded(stdlib.IndentFunc, checkIndent),
		"join":            stdlib.JoinFunc,
		"lower":           stdlib.LowerFunc,
		"regex":           stdlib.RegexFunc,
		"regexall":        stdlib.RegexAllFunc,
		"regexreplace":    stdlib.RegexReplaceFunc,
		"replace":         stdlib.ReplaceFunc,
		"split":           stdlib.SplitFunc,
		"strlen":          stdlib.StrlenFunc,
		"strrev":          stdlib.ReverseFunc,
		"substr":          stdlib.SubstrFunc,
		"timeadd":         stdlib.TimeAddFunc,
		"title":           stdlib.TitleFunc,
		"trim":            stdlib.TrimFunc,
		"trimprefix":      stdlib.TrimPrefixFunc,
		"trimspace":       stdlib.TrimSpaceFunc,
		"trimsuffix":      stdlib.TrimSuffixFunc,
		"upper":           stdlib.UpperFunc,
		"csvdecode":       stdlib.CSVDecodeFunc,
		"jsondecode":      stdlib.JSONDecodeFunc,
		"jsonencode":      stdlib.JSONEncodeFunc,
		"yamldecode":      yaml.YAMLDecodeFunc,
		"yamlencode":      yaml.YAMLEncodeFunc,
		"can":             tryfunc.CanFunc,
		"try":             tryfunc.TryFunc,
	}
}

// define returns a function with a result of one type.
func define(call func(args []cty.Value) (cty.Value, error), result cty.Type, parameters ...function.Parameter) function.Function {
	return function.New(&function.Spec{
		Params: parameters,
		Type:   function.StaticReturnType(result),
		Impl:   func(args []cty.Value, _ cty.Type) (cty.Value, error) { return call(args) },
	})
}

func parameter(name string, t cty.Type) function.Parameter {
	return function.Parameter{Name: name, Type: t}
}

// guarded returns a function that checks its arguments before f is called.
func guarded(f function.Function, check func(args []cty.Value) error) function.Function {
	return function.New(&function.Spec{
		Params:   f.Params(),
		VarParam: f.VarParam(),
		Type:     f.ReturnTypeForValues,
		Impl: func(args []cty.Value, _ cty.Type) (cty.Value, error) {
			if err := check(args); err != nil {
				return cty.NilVal, err
			}
			return f.Call(args)
		},
	})
}

func checkProduct(args []cty.Value) error {
	total := 1
	for _, a := range args {
		if u, _ := a.Unmark(); u.IsKnown() && u.CanIterateElements() {
			total *= max(1, u.LengthInt())
		}
		if total > maxProduct {
			return fmt.Errorf("the product has more than %d elements", maxProduct)
		}
	}
	return nil
}

func checkFormat(args []cty.Value) error {
	u, _ := args[0].Unmark()
	if regexp.MustCompile(`%[^a-zA-Z%]*[0-9]{5}`).MatchString(u.AsString()) {
		return fmt.Errorf("a width or precision is above %d", maxWidth)
	}
	return nil
}

func checkIndent(args []cty.Value) error {
	u, _ := args[0].Unmark()
	if u.GreaterThan(cty.NumberIntVal(maxWidth)).True() {
		return fmt.Errorf("the indent is above %d", maxWidth)
	}
	return nil
}
