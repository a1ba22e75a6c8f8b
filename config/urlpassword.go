package config

import (
	"bytes"
	"cmp"
	"regexp"
	"strconv"
	"strings"

	"github.com/hashicorp/hcl/v2"
	"github.com/hashicorp/hcl/v2/hclsyntax"
	"github.com/zclconf/go-cty/cty"

	"github.com/sonde-probe/sonde/config/internal/alternative"
)

// passwordInURL matches the user and the password in a URL, and has the password as its group.
var passwordInURL = regexp.MustCompile(`://[^/?#:@\s]*:([^/?#@\s]+)@`)

// hasURLWithPassword comes after a name in messages.
const hasURLWithPassword = " has a URL with a password"

// hasPasswordInURL reports whether a known text in a value has a URL with a password.
func hasPasswordInURL(v cty.Value) (found bool) {
	_ = cty.Walk(v, func(_ cty.Path, v cty.Value) (bool, error) {
		v, _ = v.Unmark()
		found = found || v.Type() == cty.String && v.IsKnown() && !v.IsNull() && passwordInURL.MatchString(v.AsString())
		return !found, nil
	})
	return found
}

// canMakeURL matches the text of an expression that can make a URL with a password of what is in the files.
var canMakeURL = regexp.MustCompile(`@|file\s*\(|decode\s*\(|\\[uU]`)

// urlPasswords returns the passwords of URLs that are written in an expression, as texts or with other values in them.
func (l *loader) urlPasswords(e hcl.Expression) (passwords []hcl.Expression) {
	if at := e.Range(); !bytes.ContainsRune(at.SliceBytes(l.texts[at.Filename]), '@') {
		return nil
	}
	return urlPasswordsIn(alternative.Native(e))
}

// urlPasswordsIn is urlPasswords without a look at the text.
func urlPasswordsIn(e hclsyntax.Expression) (passwords []hcl.Expression) {
	filled := make(map[*hclsyntax.TemplateExpr]*hclsyntax.TemplateExpr) // the templates of calls, which are visited first
	_ = hclsyntax.VisitAll(e, func(n hclsyntax.Node) hcl.Diagnostics {
		switch n := n.(type) {
		case *hclsyntax.FunctionCallExpr:
			if t, ok := firstTemplate(n); ok {
				filled[t] = filledIn(n, t)
			}
		case *hclsyntax.TemplateExpr:
			passwords = append(passwords, passwordsIn(cmp.Or(filled[n], n))...)
		}
		return nil
	})
	return passwords
}

func firstTemplate(call *hclsyntax.FunctionCallExpr) (t *hclsyntax.TemplateExpr, ok bool) {
	if len(call.Args) > 0 {
		t, ok = call.Args[0].(*hclsyntax.TemplateExpr)
	}
	return t, ok
}

// filledIn returns the template that has the value of a call of format or replace, of which the first argument is t:
// the other arguments are in the places that t has for them. It returns t for another call.
func filledIn(call *hclsyntax.FunctionCallExpr, t *hclsyntax.TemplateExpr) *hclsyntax.TemplateExpr {
	var split func(text string) []hclsyntax.Expression
	switch {
	case call.Name == "format" || call.Name == "formatlist":
		split = (&verbs{call: call}).split
	case call.Name == "replace" && len(call.Args) == 3:
		split = func(text string) []hclsyntax.Expression { return splitByPlaceholder(call, text) }
	default:
		return t
	}
	out := &hclsyntax.TemplateExpr{SrcRange: t.SrcRange}
	for _, part := range t.Parts {
		if text := alternative.TextOf(part); text != "" {
			out.Parts = append(out.Parts, split(text)...)
		} else {
			out.Parts = append(out.Parts, part)
		}
	}
	return out
}

// splitByPlaceholder returns a text in which replace puts its last argument, as the parts of a template.
func splitByPlaceholder(call *hclsyntax.FunctionCallExpr, text string) (parts []hclsyntax.Expression) {
	placeholder := ""
	if t, ok := call.Args[1].(*hclsyntax.TemplateExpr); ok && len(t.Parts) == 1 {
		placeholder = alternative.TextOf(t.Parts[0])
	}
	if placeholder == "" {
		return []hclsyntax.Expression{textAt(text, call.Range())}
	}
	for i, word := range strings.Split(text, placeholder) {
		if i > 0 {
			parts = append(parts, call.Args[2])
		}
		parts = append(parts, textAt(word, call.Range()))
	}
	return parts
}

// verbOfFormat matches a verb of format, and has the number of its argument as a group, if it says one.
var verbOfFormat = regexp.MustCompile(`%[-+# 0-9.*]*(?:\[([0-9]+)\])?[-+# 0-9.*]*[a-zA-Z%]`)

// verbs are those of a call of format.
type verbs struct {
	call *hclsyntax.FunctionCallExpr
	last int // the number of the argument of the last verb so far, from 1 on
}

// split returns a text in which format puts its arguments, as the parts of a template.
func (v *verbs) split(text string) (parts []hclsyntax.Expression) {
	start := 0
	for _, at := range verbOfFormat.FindAllStringSubmatchIndex(text, -1) {
		parts = append(parts, textAt(text[start:at[0]], v.call.Range()))
		if start = at[1]; text[start-1] == '%' {
			parts = append(parts, textAt("%", v.call.Range()))
			continue
		}
		v.last++
		if at[2] >= 0 {
			v.last, _ = strconv.Atoi(text[at[2]:at[3]])
		}
		parts = append(parts, v.argument(v.last))
	}
	return append(parts, textAt(text[start:], v.call.Range()))
}

// argument returns the argument with a number, from 1 on, after the text of the call.
func (v *verbs) argument(number int) hclsyntax.Expression {
	args, at := v.call.Args, v.call.Range()
	switch last := len(args) - 1; {
	case number < 1, number > last && !v.call.ExpandFinal, last == 0:
		return &hclsyntax.LiteralValueExpr{Val: cty.DynamicVal, SrcRange: at}
	case number >= last && v.call.ExpandFinal:
		index := &hclsyntax.LiteralValueExpr{Val: cty.NumberIntVal(int64(number - last)), SrcRange: at}
		return &hclsyntax.IndexExpr{Collection: args[last], Key: index, SrcRange: at}
	}
	return args[number]
}

func textAt(text string, at hcl.Range) hclsyntax.Expression {
	return &hclsyntax.LiteralValueExpr{Val: cty.StringVal(text), SrcRange: at}
}

// passwordsIn returns the passwords of URLs in a template, as templates.
func passwordsIn(t *hclsyntax.TemplateExpr) (passwords []hcl.Expression) {
	const other = "\x00" // stands for a part that is no text
	var text strings.Builder
	others := make(map[int]hclsyntax.Expression) // by their place in the text
	for _, part := range t.Parts {
		if word := alternative.TextOf(part); word != "" {
			text.WriteString(word)
			continue
		}
		others[text.Len()] = part
		text.WriteString(other)
	}
	for _, at := range passwordInURL.FindAllStringSubmatchIndex(text.String(), -1) {
		password := &hclsyntax.TemplateExpr{SrcRange: t.SrcRange}
		for from, end := at[2], at[3]; from < end; {
			if part := others[from]; part != nil {
				password.Parts = append(password.Parts, part)
				from += len(other)
				continue
			}
			word, _, _ := strings.Cut(text.String()[from:end], other)
			word = cmp.Or(word, other) // which may be written, too
			password.Parts = append(password.Parts, textAt(word, t.SrcRange))
			from += len(word)
		}
		passwords = append(passwords, password)
	}
	return passwords
}
