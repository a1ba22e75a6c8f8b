package config

import (
	"cmp"
	"fmt"
	"slices"
	"strings"
	"unicode"
	"unicode/utf8"

	"github.com/hashicorp/hcl/v2"
	"github.com/hashicorp/hcl/v2/hclsyntax"
	"github.com/zclconf/go-cty/cty"

	"github.com/sonde-probe/sonde/config/internal/tree"
	"github.com/sonde-probe/sonde/config/suggest"
)

// hidden is the hint of an error about a sensitive value, whose text could contain a
// part of the value.
const hidden = "the reason is not shown because it may contain a sensitive value"

// explain reports HCL's errors about an expression, reworded.
func (e *evaluator) explain(b *tree.Body, x hcl.Expression, diags hcl.Diagnostics) {
	secret := e.texts.isSensitive(x, b.Ctx)
	var reported []hcl.Range
	for _, d := range diags {
		at := x.Range()
		if d.Subject != nil {
			at = *d.Subject
		}
		if d.Severity != hcl.DiagError || slices.ContainsFunc(reported, func(r hcl.Range) bool { return overlap(r, at) }) {
			continue // a warning, or a consequence of an error that was reported
		}
		reported = append(reported, at)
		r := reword(d, b.Ctx, secret)
		if name := e.interpolation(at); d.Summary == "Unknown variable" && r.reference && name != "" {
			r.hint = cmp.Or(noticeHint(b, name), fmt.Sprintf("for the text %s itself, write $%[1]s; a variable is written ${var.NAME}", name))
		}
		r.at, r.body = at, b
		e.add(r)
	}
}

// interpolation returns the ${…} in a text that has nothing but a name, or "".
func (e *evaluator) interpolation(at hcl.Range) string {
	text, from, to := e.texts.byName[at.Filename], at.Start.Byte-len("${"), at.End.Byte+len("}")
	if from < 0 || to > len(text) || string(text[from:at.Start.Byte]) != "${" || text[to-1] != '}' {
		return ""
	}
	return string(text[from:to])
}

// noticeHint returns how the body of a webhook has a variable that is written as ${…} there, or "".
func noticeHint(b *tree.Body, name string) string {
	if b.Block == nil || b.Block.Type != "webhook" {
		return ""
	}
	return fmt.Sprintf("the variables of a notice are written $(summary), here %s; a variable of this file is ${var.NAME}", strings.NewReplacer("{", "(", "}", ")").Replace(name))
}

// reword returns the report for one of HCL's diagnostics.
func reword(d *hcl.Diagnostic, ctx *hcl.EvalContext, secret bool) report {
	if d.EvalContext != nil {
		ctx = d.EvalContext
	}
	switch d.Summary {
	case "Unknown variable":
		return unknownName(d, ctx)
	case "Unsupported attribute", "Missing map element", "Invalid index":
		if r, ok := unknownAttribute(d, ctx, secret); ok {
			return r
		}
		if !secret {
			return report{summary: lower(strings.TrimSuffix(d.Detail, "."))}
		}
	case "Call to unknown function":
		return unknownFunction(d)
	case "Invalid function argument", "Error in function call":
		return failedCall(d, secret)
	}
	if secret {
		return report{summary: lower(d.Summary), hint: hidden}
	}
	switch d.Summary {
	case "Operation failed":
		return report{summary: lower(strings.TrimSuffix(d.Detail, "."))} // the summary adds nothing
	case "Invalid operand":
		return report{summary: lower(strings.TrimSuffix(d.Detail, ".")), hint: `texts are joined as "${a}${b}"`}
	case "Inconsistent conditional result types":
		return report{summary: lower(d.Summary), hint: lower(strings.TrimSuffix(d.Detail, ".")) + "\nan empty set is written toset([]), an empty map {}"}
	}
	return report{summary: lower(d.Summary), hint: lower(strings.TrimSuffix(d.Detail, "."))}
}

// lower makes the first letter of HCL's sentences lower case, except in abbreviations.
func lower(s string) string {
	r, n := utf8.DecodeRuneInString(s)
	if next, _ := utf8.DecodeRuneInString(s[n:]); unicode.IsUpper(next) {
		return s
	}
	return string(unicode.ToLower(r)) + s[n:]
}

// unknownName returns the report of a word that is not a variable: usually a string
// without quotes, or a variable without var.
func unknownName(d *hcl.Diagnostic, ctx *hcl.EvalContext) report {
	name := ""
	if t := traversalAt(d); len(t) > 0 {
		name = t.RootName()
	}
	r := report{summary: fmt.Sprintf("unknown name %q", name), reference: true}
	for _, root := range []string{"var", "local", "each"} {
		if slices.Contains(attributeNames(lookup(ctx, root)), name) {
			r.hint = fmt.Sprintf("did you mean %s.%s?", root, name)
			return r
		}
	}
	quotes := fmt.Sprintf("a string needs quotes: %q; a variable is written var.%s", name, name)
	if t := traversalAt(d); len(t) > 1 {
		quotes = fmt.Sprintf("a string needs quotes: %q; a variable is written var.%s", traversalText(t), name)
	}
	r.hint = cmp.Or(suggest.DidYouMean("%q", name, rootNames(ctx)), quotes)
	switch name {
	case "each", "count":
		r.hint = "each.key and each.value exist in a target with for_each, and there is no count"
		if iterator := iteratorOf(ctx); iterator != "" && iterator != "each" {
			r.hint = fmt.Sprintf("in this dynamic block it is %s.key and %[1]s.value", iterator)
		}
	case "env":
		r.hint = `environment variables are read by a function: env("NAME")`
	case "target", "probe", "data", "module":
		r.hint = "blocks cannot refer to each other: write the value into locals, and refer to local.name"
	}
	return r
}

// unknownAttribute returns the report of a name after a dot, or in brackets, that the
// value before it does not have.
func unknownAttribute(d *hcl.Diagnostic, ctx *hcl.EvalContext, secret bool) (report, bool) {
	t := traversalAt(d)
	for i := 1; i < len(t); i++ {
		name, ok := stepName(t[i])
		if !ok || d.Subject == nil || t[i].SourceRange().Start.Byte != d.Subject.Start.Byte {
			continue
		}
		parent, diags := t[:i].TraverseAbs(ctx)
		if !diags.HasErrors() && parent.IsKnown() && parent.Type().IsPrimitiveType() {
			text := traversalText(t[:i])
			return report{summary: fmt.Sprintf("%s is %s, which has no attribute %q", text, kindOf(parent), name), hint: "write " + text}, true
		}
		if diags.HasErrors() || parent.IsNull() || !(parent.Type().IsObjectType() || parent.Type().IsMapType()) {
			return report{}, false
		}
		return attributeReport(t[:i], name, parent, secret), true
	}
	return report{}, false
}

func attributeReport(before hcl.Traversal, name string, parent cty.Value, secret bool) report {
	r := report{summary: fmt.Sprintf("%s has no attribute %q", traversalText(before), name), reference: true}
	if len(before) == 1 {
		switch before.RootName() {
		case "var":
			r.summary = fmt.Sprintf("unknown variable var.%s", name)
		case "local":
			r.summary = fmt.Sprintf("unknown local local.%s", name)
		}
	}
	if secret && parent.ContainsMarked() {
		return r
	}
	names := attributeNames(parent)
	r.hint = cmp.Or(suggest.DidYouMean(traversalText(before)+".%s", name, names), suggest.Known(names))
	if len(names) == 1 && strings.ContainsAny(names[0], ";\t|") {
		r.hint = fmt.Sprintf("the only name is %q: csvdecode takes commas between fields; replace(file(…), \";\", \",\") makes them", names[0])
	}
	if len(names) == 0 && before.RootName() == "var" {
		r.hint = fmt.Sprintf("declare it: variable %q { }", name)
	}
	return r
}

func unknownFunction(d *hcl.Diagnostic) report {
	name := ""
	if extra, ok := hcl.DiagnosticExtra[hclsyntax.FunctionCallUnknownDiagExtra](d); ok {
		name = extra.CalledFunctionNamespace() + extra.CalledFunctionName()
	}
	return report{summary: fmt.Sprintf("unknown function %s()", name), hint: suggest.DidYouMean("%s()", name, Functions())}
}

// failedCall returns the report of a function call that failed.
func failedCall(d *hcl.Diagnostic, secret bool) report {
	name := "the function"
	var cause error
	if extra, ok := hcl.DiagnosticExtra[hclsyntax.FunctionCallDiagExtra](d); ok {
		name, cause = extra.CalledFunctionName()+"()", extra.FunctionCallError()
	}
	switch {
	case secret && (cause == nil || !readsByName(d.Expression, name)):
		return report{summary: fmt.Sprintf("%s failed for these arguments", name), hint: hidden}
	case cause != nil && strings.HasSuffix(name, "decode()"):
		return report{summary: fmt.Sprintf("%s%s: %s", name, ofFile(d.Expression), cause), hint: decodeHint(name, cause.Error())}
	case cause != nil:
		return report{summary: fmt.Sprintf("%s: %s", name, cause)}
	}
	return report{summary: fmt.Sprintf("%s does not take these arguments", name), hint: lower(strings.TrimSuffix(d.Detail, "."))}
}

// ofFile returns " of" and the name of the file whose text a call decodes, or "".
func ofFile(e hcl.Expression) string {
	if call, ok := e.(*hclsyntax.FunctionCallExpr); ok && strings.HasSuffix(call.Name, "decode") && len(call.Args) > 0 {
		e = call.Args[0]
	}
	file, ok := e.(*hclsyntax.FunctionCallExpr)
	if !ok || file.Name != "file" || len(file.Args) != 1 {
		return ""
	}
	name, diags := file.Args[0].Value(nil)
	if diags.HasErrors() || name.Type() != cty.String {
		return ""
	}
	return " of " + name.AsString()
}

// decodeHint returns what to do about a text that cannot be decoded.
func decodeHint(function, problem string) string {
	switch {
	case function == "yamldecode()" && strings.Contains(problem, "cannot start any token"):
		return "YAML is indented by spaces, not by tabs; and a text that begins with a sign such as @ or % needs quotes"
	case function == "csvdecode()" && strings.Contains(problem, "number of fields"):
		return "each line needs as many fields as the first, which has the names; a text with a comma needs quotes"
	case function == "csvdecode()":
		return "csvdecode takes fields with commas between them, and texts with commas in quotes"
	case function == "base64decode()":
		return ""
	}
	return "the text is not in this format, or was cut off"
}

// readsByName reports whether a function reads what its argument names, and the name stands there as
// text: then its error has the name, and nothing that is sensitive. The expression is the call, or the
// argument.
func readsByName(e hcl.Expression, function string) bool {
	if call, ok := e.(*hclsyntax.FunctionCallExpr); ok && len(call.Args) > 0 {
		e = call.Args[0]
	}
	name, ok := e.(*hclsyntax.TemplateExpr)
	return ok && name.IsStringLiteral() && (function == "env()" || function == "file()")
}
