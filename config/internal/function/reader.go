package function

import (
	"errors"
	"fmt"
	"maps"
	"os"
	"path/filepath"
	"strings"
	"unicode/utf8"

	"github.com/hashicorp/hcl/v2"
	"github.com/hashicorp/hcl/v2/hclsyntax"
	"github.com/zclconf/go-cty/cty"
	"github.com/zclconf/go-cty/cty/convert"
	"github.com/zclconf/go-cty/cty/function"
)

// Reader provides the functions that read files and the environment.
type Reader struct {
	Dir string                           // the folder of the calling file, where relative paths start
	Env func(name string) (string, bool) // never nil

	ReadFile func(path string, max int64) ([]byte, error) // never nil
	IsFile   func(path string) bool                       // never nil

	// ToPush refuses abspath of a relative path: what is pushed is in no folder of the machines that use it.
	ToPush bool

	Pure map[string]function.Function // what a template can call besides file, fileexists and env
}

// Table returns file, fileexists, templatefile, abspath and env.
func (r Reader) Table() map[string]function.Function {
	return map[string]function.Function{
		"abspath":      text(r.absolute),
		"env":          r.env(),
		"file":         text(r.read),
		"fileexists":   define(r.exists, cty.Bool, parameter("path", cty.String)),
		"templatefile": define(r.template, cty.String, parameter("path", cty.String), parameter("vars", cty.DynamicPseudoType)),
	}
}

func (r Reader) path(p string) string {
	if filepath.IsAbs(p) {
		return p
	}
	return filepath.Join(r.Dir, p)
}

func (r Reader) absolute(path string) (string, error) {
	if r.ToPush && !filepath.IsAbs(path) {
		return "", fmt.Errorf("%q is relative, and what is pushed is in no folder of an engine; write a path on the machines of the engines", path)
	}
	return filepath.Abs(r.path(path))
}

func (r Reader) read(name string) (string, error) {
	path := r.path(name)
	b, err := r.ReadFile(path, maxFileSize)
	switch {
	case errors.Is(err, os.ErrNotExist):
		if absolute, noDir := filepath.Abs(path); noDir == nil && path != name {
			return "", fmt.Errorf("there is no file %s: a relative path starts at the folder of the configuration file", absolute)
		}
		return "", fmt.Errorf("there is no file %s", path)
	case err != nil:
		return "", err
	case !utf8.Valid(b):
		return "", fmt.Errorf("%s is not UTF-8 text", path)
	}
	return strings.TrimPrefix(string(b), "\ufeff"), nil // a byte order mark is no part of the text
}

func (r Reader) exists(args []cty.Value) (cty.Value, error) {
	return cty.BoolVal(r.IsFile(r.path(args[0].AsString()))), nil
}

func (r Reader) env() function.Function {
	return function.New(&function.Spec{
		Params:   []function.Parameter{{Name: "name", Type: cty.String}},
		VarParam: &function.Parameter{Name: "default", Type: cty.String},
		Type:     function.StaticReturnType(cty.String),
		Impl: func(args []cty.Value, _ cty.Type) (cty.Value, error) {
			if len(args) > 2 {
				return cty.NilVal, errors.New("only a name and a default are allowed")
			}
			name := args[0].AsString()
			if v, ok := r.Env(name); ok {
				return cty.StringVal(strings.ToValidUTF8(v, "\uFFFD")), nil
			}
			if len(args) == 2 {
				return args[1], nil
			}
			return cty.NilVal, fmt.Errorf("the environment variable %s is not set; set it, or give a default: env(%q, \"…\")", name, name)
		},
	})
}

// template is templatefile(path, vars), which renders the template in a file. A template
// cannot call templatefile.
func (r Reader) template(args []cty.Value) (cty.Value, error) {
	name, vars := args[0].AsString(), args[1]
	if ty := vars.Type(); !ty.IsObjectType() && !ty.IsMapType() {
		return cty.NilVal, function.NewArgErrorf(1, "vars must be an object: { name = value }")
	}
	body, err := r.read(name)
	if err != nil {
		return cty.NilVal, function.NewArgError(0, err)
	}
	expr, diags := hclsyntax.ParseTemplate([]byte(body), r.path(name), hcl.InitialPos)
	if diags.HasErrors() {
		return cty.NilVal, templateError(diags)
	}
	v, diags := expr.Value(&hcl.EvalContext{Variables: vars.AsValueMap(), Functions: r.inTemplate()})
	if diags.HasErrors() {
		return cty.NilVal, templateError(diags)
	}
	s, err := convert.Convert(v, cty.String)
	if err != nil || s.IsNull() {
		return cty.NilVal, fmt.Errorf("the result of the template %s is not a string", r.path(name))
	}
	return s, nil
}

func (r Reader) inTemplate() map[string]function.Function {
	t := r.Table()
	maps.Copy(t, r.Pure)
	t["templatefile"] = function.New(&function.Spec{
		VarParam: &function.Parameter{Name: "arguments", Type: cty.DynamicPseudoType},
		Type:     function.StaticReturnType(cty.String),
		Impl: func([]cty.Value, cty.Type) (cty.Value, error) {
			return cty.NilVal, errors.New("cannot be called in a template")
		},
	})
	return t
}

func templateError(diags hcl.Diagnostics) error {
	for _, d := range diags {
		if d.Severity == hcl.DiagError {
			at, text := d.Subject, strings.TrimSuffix(d.Detail, ".")
			if call, ok := hcl.DiagnosticExtra[hclsyntax.FunctionCallDiagExtra](d); ok && call.FunctionCallError() != nil {
				text = fmt.Sprintf("%s(): %v", call.CalledFunctionName(), call.FunctionCallError())
			}
			first := min(1, len(text)) // HCL begins with a capital letter
			return fmt.Errorf("%s:%d:%d: %s", at.Filename, at.Start.Line, at.Start.Column, strings.ToLower(text[:first])+text[first:])
		}
	}
	return errors.New("the template is invalid")
}
