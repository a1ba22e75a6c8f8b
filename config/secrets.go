package config

import (
	"bytes"
	"fmt"
	"math/big"

	"github.com/hashicorp/hcl/v2"
	"github.com/hashicorp/hcl/v2/hclsyntax"
	"github.com/zclconf/go-cty/cty"

	"github.com/sonde-probe/sonde/config/internal/tree"
)

// A secret is the value of a sensitive field or variable, an argument of sensitive, or what has the name of a secret. In a
// file that is about to be pushed it is an error if its expression has an exposure. In other files it is a warning if its
// expression is a constant. A URL with a password is both.

// secretValue says that an expression is the value of a secret, whatever name it is set to.
type secretValue struct {
	name        string
	isSensitive bool // by a declaration, and not by its name only
	isDefault   bool // of a variable
}

// secretSearch is the search for secrets in files.
type secretSearch struct {
	e           *evaluator
	scope       *scope
	isSensitive map[string]bool // whether a variable is, by name

	// Of the value that is searched, which is neither an object nor a list:
	value  hcl.Expression
	name   string // to which it is set
	toPush bool
	found  bool // one report of a value is enough
}

// newSecretSearch returns a search that knows the variables.
func newSecretSearch(e *evaluator, s *scope, variables []*variable) *secretSearch {
	search := &secretSearch{e: e, scope: s, isSensitive: make(map[string]bool)}
	for _, v := range variables {
		search.isSensitive[v.name] = v.sensitive
		search.noteDefault(v)
	}
	return search
}

// noteDefault notes the default of a variable that is a secret. One that is sensitive may have a default in a file that is
// not pushed.
func (s *secretSearch) noteDefault(v *variable) {
	a, ok := v.content.Arguments["default"]
	if !ok {
		return
	}
	if v.sensitive && s.e.toPush[a.Expr.Range().Filename] || !v.sensitive && isSecretName(v.name) {
		s.e.note(a.Expr, secretValue{name: v.name, isSensitive: v.sensitive, isDefault: true})
	}
}

// note notes that a value is a secret, and if it is written in braces or brackets, that each part of it is.
func (e *evaluator) note(x hcl.Expression, of secretValue) {
	tree.VisitEntries(of.name, x, func(_ string, part hcl.Expression) { e.noted[part.Range()] = of })
}

// noteSensitive masks the value of a sensitive field, and notes it in a file that is about to be pushed.
func (e *evaluator) noteSensitive(f *Field, arg tree.Argument) {
	at := arg.Expr.Range()
	e.texts.mask(at)
	if !e.toPush[at.Filename] {
		return
	}
	if f.Type == StringMap || f.Type == StringsMap { // such as headers, of which only some are secrets
		if _, diags := hcl.ExprMap(arg.Expr); !diags.HasErrors() {
			return // the names of the entries say which
		}
	}
	e.note(arg.Expr, secretValue{name: arg.Name, isSensitive: true})
}

// searchFile reports the secrets in a file. It reads the text once, and not for each element of a loop.
func (s *secretSearch) searchFile(body tree.Body) {
	isNamed := make(map[string]bool) // isSecretName, by name: a list has one name for all
	body.VisitValues(func(name string, value hcl.Expression) {
		s.value, s.name, s.toPush, s.found = value, name, s.e.toPush[value.Range().Filename], false
		is, known := isNamed[name]
		if !known {
			is = isSecretName(name)
			isNamed[name] = is
		}
		if noted, ok := s.e.noted[value.Range()]; ok {
			s.check(noted, value)
		} else if is {
			s.check(secretValue{name: name}, value)
		}
		s.search()
	})
}

// check reports a secret in the value, or the value itself.
func (s *secretSearch) check(of secretValue, e hcl.Expression) {
	v, isConstant := s.constant(e)
	if isConstant && isHarmless(v) && !(s.toPush && of.isSensitive) {
		return
	}
	how := s.exposure(native(e))
	switch {
	case how == "", !s.toPush && (!isConstant || containsMarked(v)):
		return
	case isConstant:
		how = "everyone who can read etcd would see it"
	}
	cure := `write env("NAME"), file("/PATH") or var.NAME with sensitive = true, and nothing else`
	if of.isDefault {
		cure = fmt.Sprintf("leave out the default, and set %s%s or --var-file on each engine", envPrefix, of.name)
	}
	s.report(of.name+" is a secret", how+"\n"+cure)
}

// search looks for objects with secrets in them, for calls of sensitive, and for URLs with a password. Calls of sensitive and
// nonsensitive say of what is inside whether it is a secret.
func (s *secretSearch) search() {
	if !bytes.ContainsAny(s.e.texts.at(s.value.Range()), `{(@\`) { // without these there are none
		return
	}
	hclsyntax.Walk(native(s.value), &secretWalk{search: s})
}

// secretWalk looks at the nodes of an expression that are in no call of sensitive or nonsensitive.
type secretWalk struct {
	search *secretSearch
	calls  int // around the node
}

// Enter implements hclsyntax.Walker.
func (w *secretWalk) Enter(n hclsyntax.Node) hcl.Diagnostics {
	if w.calls == 0 {
		w.search.node(n)
	}
	if saysWhetherSecret(n) {
		w.calls++
	}
	return nil
}

// Exit implements hclsyntax.Walker.
func (w *secretWalk) Exit(n hclsyntax.Node) hcl.Diagnostics {
	if saysWhetherSecret(n) {
		w.calls--
	}
	return nil
}

func saysWhetherSecret(n hclsyntax.Node) bool {
	call, ok := n.(*hclsyntax.FunctionCallExpr)
	return ok && (call.Name == "sensitive" || call.Name == "nonsensitive")
}

func (s *secretSearch) node(n hclsyntax.Node) {
	switch n := n.(type) {
	case *hclsyntax.FunctionCallExpr:
		if n.Name != "sensitive" || !s.toPush {
			return
		}
		for _, arg := range n.Args {
			tree.VisitEntries("", arg, func(_ string, part hcl.Expression) {
				s.check(secretValue{name: s.name, isSensitive: true}, part)
			})
		}
	case *hclsyntax.ObjectConsExpr:
		tree.VisitEntries("", n, func(name string, part hcl.Expression) {
			if isSecretName(name) {
				s.check(secretValue{name: name}, part)
			}
		})
	case *hclsyntax.TemplateExpr:
		if hasPassword(n) {
			s.report(s.name+" has a URL with a password", "everyone who can read etcd would see it\n"+
				`write "https://USER:${env("NAME")}@HOST/", or env("NAME") for the whole URL`)
		}
	}
}

// report reports the value. The hint is for a file that is about to be pushed.
func (s *secretSearch) report(what, hint string) {
	if s.found {
		return
	}
	s.found = true
	at := s.value.Range()
	s.e.texts.mask(at)
	if s.toPush {
		s.e.add(report{
			at: at, summary: what + ", which a pushed file must not contain",
			hint: hint + "; write nonsensitive(…) if it is not a secret",
		})
		return
	}
	s.e.add(report{
		isWarning: true, at: at, summary: what + " in plain text",
		hint: "read it from elsewhere: a variable with sensitive = true, sensitive(env(\"…\")) or sensitive(trimspace(file(\"…\")))\n" +
			"sensitive(\"…\") keeps it here, and hides it in all outputs",
	})
}

// constant returns the value of an expression that refers to nothing, and reads nothing.
func (s *secretSearch) constant(e hcl.Expression) (cty.Value, bool) {
	if len(e.Variables()) > 0 {
		return cty.DynamicVal, false
	}
	v, diags := protected(e, s.scope.all) // which has no functions that read
	return v, !diags.HasErrors()
}

// isHarmless reports whether a constant is no secret although its name says so: it is blank, true, false or a short number.
func isHarmless(v cty.Value) bool {
	v, _ = v.Unmark()
	switch {
	case isBlank(v):
		return true
	case !v.IsKnown():
		return false
	case v.Type() == cty.Number:
		const sixDigits = 100_000
		return new(big.Float).Abs(v.AsBigFloat()).Cmp(big.NewFloat(sixDigits)) < 0
	}
	return v.Type() == cty.Bool
}
