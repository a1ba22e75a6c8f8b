package config

import (
	"cmp"
	"fmt"
	"regexp"
	"slices"
	"strings"

	"github.com/hashicorp/hcl/v2"
	"github.com/hashicorp/hcl/v2/hclsyntax"
	"github.com/zclconf/go-cty/cty"
)

// exposure returns how the value of an expression may contain a text of its file. It returns "" for the expressions whose
// values each engine reads for itself:
//
//	null and ""
//	env("NAME") and file("/PATH")
//	var.NAME of a sensitive variable, and var.NAME and local.NAME of the files of the engine
//	a part of a value, such as var.NAME[each.key]
//	trimspace(…) and other functions, if all arguments are one of these
//	CONDITION ? … : … with two of these
//	"Bearer ${…}" with one of these
//	nonsensitive(…) of anything
//
// It decides by the syntax, and evaluates nothing.
func (s *secretSearch) exposure(e hclsyntax.Expression) string {
	switch e := e.(type) {
	case templatePart:
		return s.exposure(e.Expression)
	case *hclsyntax.ParenthesesExpr:
		return s.exposure(e.Expression)
	case *hclsyntax.TemplateWrapExpr:
		return s.exposure(e.Wrapped)
	case *hclsyntax.LiteralValueExpr:
		if isBlank(e.Val) {
			return ""
		}
		return "everyone who can read etcd would see it"
	case *hclsyntax.TemplateExpr:
		return s.exposureOfTemplate(e)
	case *hclsyntax.ScopeTraversalExpr:
		return s.exposureOfName(e.Traversal)
	case *hclsyntax.RelativeTraversalExpr:
		return s.exposure(e.Source)
	case *hclsyntax.IndexExpr:
		return s.exposure(e.Collection)
	case *hclsyntax.ConditionalExpr:
		return cmp.Or(s.exposure(e.TrueResult), s.exposure(e.FalseResult))
	case *hclsyntax.FunctionCallExpr:
		return s.exposureOfCall(e)
	}
	return "the value of this expression may be in the file"
}

func (s *secretSearch) exposureOfTemplate(e *hclsyntax.TemplateExpr) string {
	parts := e.Parts
	if len(parts) == 2 && isScheme(literalText(parts[0])) {
		parts = parts[1:]
	}
	switch len(parts) {
	case 0:
		return ""
	case 1:
		return s.exposure(parts[0])
	}
	return `the text beside ${…} is in the file: only a scheme such as "Bearer " may stand before it`
}

func (s *secretSearch) exposureOfName(t hcl.Traversal) string {
	root, name := t.RootName(), ""
	if len(t) > 1 {
		name, _ = stepName(t[1])
	}
	own := s.scope.own.Variables[root]
	switch {
	case own != cty.NilVal && own.Type().HasAttribute(name), root == "var" && s.isSensitive[name]:
		return ""
	case root == "var":
		return fmt.Sprintf("variable %q is not sensitive: declare it with sensitive = true, or in the files of the engines", name)
	case root == "local":
		return traversalText(t) + " may have its text in a pushed file: write its expression here, or move it to the files of the engines"
	}
	return traversalText(t) + ` may have its text in a pushed file: what differs between elements is env("NAME_${each.key}") or var.NAME[each.key]`
}

func (s *secretSearch) exposureOfCall(e *hclsyntax.FunctionCallExpr) string {
	args := e.Args
	switch e.Name {
	case "nonsensitive":
		return ""
	case "file":
		if len(args) == 0 || !strings.HasPrefix(literalText(args[0]), "/") {
			return "a relative path names a pushed file: file needs one that begins with /"
		}
		return ""
	case "env":
		if len(args) > 0 && !e.ExpandFinal {
			args = args[1:]
		}
		if slices.ContainsFunc(args, func(arg hclsyntax.Expression) bool { return s.exposure(arg) != "" }) {
			return "the default of env is in the file: leave it out"
		}
		return ""
	}
	for _, arg := range args {
		if how := s.exposure(arg); how != "" {
			return how
		}
	}
	return ""
}

// schemes are the words before the secret in a header Authorization.
var schemes = []string{"basic", "bearer", "digest", "token", "apikey", "negotiate"}

func isScheme(text string) bool {
	word, isWord := strings.CutSuffix(text, " ")
	return isWord && slices.Contains(schemes, strings.ToLower(word))
}

// literalText returns the text that an expression begins with, or "".
func literalText(e hclsyntax.Expression) string {
	if t, ok := e.(*hclsyntax.TemplateExpr); ok && len(t.Parts) > 0 {
		e = t.Parts[0]
	}
	if e, ok := e.(*hclsyntax.LiteralValueExpr); ok && e.Val.Type() == cty.String && e.Val.IsKnown() && !e.Val.IsNull() {
		return e.Val.AsString()
	}
	return ""
}

// isBlank reports whether a value is null, or a text of spaces only.
func isBlank(v cty.Value) bool {
	v, _ = v.Unmark()
	return v.IsNull() || v.IsKnown() && v.Type() == cty.String && strings.TrimSpace(v.AsString()) == ""
}

// passwordInURL matches the user and the password in a URL, and has the password as its group.
var passwordInURL = regexp.MustCompile(`://[^/?#:@\s]*:([^/?#@\s]+)@`)

// hasPassword reports whether a template has a URL with a password, all or a part of which is a text of the template.
func hasPassword(t *hclsyntax.TemplateExpr) bool {
	const other = "\x00" // stands for a part that is no text
	var text strings.Builder
	for _, part := range t.Parts {
		text.WriteString(cmp.Or(literalText(part), other))
	}
	for _, password := range passwordInURL.FindAllStringSubmatch(text.String(), -1) {
		if strings.Trim(password[1], other) != "" {
			return true
		}
	}
	return false
}

// native converts an expression to native syntax. A string in a JSON file is parsed as a template.
func native(e hcl.Expression) hclsyntax.Expression {
	if n, ok := e.(hclsyntax.Expression); ok {
		return n
	}
	v, _ := e.Value(nil) // a string as it is written
	if v.Type() == cty.String && v.IsKnown() && !v.IsNull() {
		if t, diags := hclsyntax.ParseTemplate([]byte(v.AsString()), e.Range().Filename, hcl.InitialPos); !diags.HasErrors() {
			return t
		}
	}
	return &hclsyntax.LiteralValueExpr{Val: v, SrcRange: e.Range()}
}
