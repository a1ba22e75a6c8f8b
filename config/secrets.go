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

// noteSecret notes that a value is a secret, and if it is written in braces or brackets, that each part of it is.
func (l *loader) noteSecret(e hcl.Expression, s secretValue) {
	for _, part := range tree.Entries(s.name, e) {
		l.secretValues[part.Range()] = s
	}
}

// checkSecrets reports the secrets in a file. It reads the text once, and not for each element of a loop.
func (l *loader) checkSecrets(body tree.Body) {
	isNamed := make(map[string]bool)
	s := &secretSearch{loader: l}
	for name, value := range body.Values() {
		s.value, s.name, s.toPush, s.found = value, name, l.isToPush(value.Range()), false
		is, known := isNamed[name]
		if !known {
			is = isSecretName(name)
			isNamed[name] = is
		}
		if noted, ok := l.secretValues[value.Range()]; ok {
			s.check(noted, value)
		} else if is {
			s.check(secretValue{name: name}, value)
		}
		s.search()
	}
}

// secretSearch is the search in values that are set to names, which are neither objects nor lists.
type secretSearch struct {
	*loader
	value  hcl.Expression
	name   string
	toPush bool
	found  bool // one report of a value is enough

	marked int // the calls of sensitive and nonsensitive around the current node
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
		how = "all who can read etcd would see it"
	}
	cure := `write env("NAME"), file("/PATH") or var.NAME with sensitive = true, and nothing else`
	if of.isDefault {
		cure = fmt.Sprintf("leave out the default, and set %s%s or --var on each engine", envPrefix, of.name)
	}
	s.report(of.name+" is a secret", how+"\n"+cure)
}

// search looks for objects with secrets in them, for calls of sensitive, and for URLs with a password.
func (s *secretSearch) search() {
	at := s.value.Range()
	if bytes.ContainsAny(at.SliceBytes(s.texts[at.Filename]), `{(@\`) { // without these there are none
		hclsyntax.Walk(native(s.value), s)
	}
}

// Enter implements hclsyntax.Walker.
func (s *secretSearch) Enter(n hclsyntax.Node) hcl.Diagnostics {
	call, isCall := n.(*hclsyntax.FunctionCallExpr)
	switch {
	case s.marked > 0:
	case isCall && call.Name == "sensitive" && s.toPush:
		s.arguments(call)
	default:
		s.node(n)
	}
	if isCall && marks(call) {
		s.marked++
	}
	return nil
}

// Exit implements hclsyntax.Walker.
func (s *secretSearch) Exit(n hclsyntax.Node) hcl.Diagnostics {
	if call, ok := n.(*hclsyntax.FunctionCallExpr); ok && marks(call) {
		s.marked--
	}
	return nil
}

// marks reports whether a call says of its argument whether that is a secret.
func marks(call *hclsyntax.FunctionCallExpr) bool {
	return call.Name == "sensitive" || call.Name == "nonsensitive"
}

func (s *secretSearch) arguments(call *hclsyntax.FunctionCallExpr) {
	for _, arg := range call.Args {
		for _, part := range tree.Entries("", arg) {
			s.check(secretValue{name: s.name, isSensitive: true}, part)
		}
	}
}

func (s *secretSearch) node(n hclsyntax.Node) {
	switch n := n.(type) {
	case *hclsyntax.ObjectConsExpr:
		for name, part := range tree.Entries("", n) {
			if isSecretName(name) {
				s.check(secretValue{name: name}, part)
			}
		}
	case *hclsyntax.TemplateExpr:
		if hasPassword(n) {
			s.report(s.name+" has a URL with a password", "all who can read etcd would see it\n"+
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
	s.secret(at)
	if s.toPush {
		s.add(report{
			at: at, summary: what + ", which a pushed file must not contain",
			hint: hint + "; nonsensitive(…) says that it is no secret",
		})
		return
	}
	s.add(report{
		severity: Warning, at: at, summary: what + " in plain text",
		hint: "read it from elsewhere: a variable with sensitive = true, sensitive(env(\"…\")) or sensitive(trimspace(file(\"…\")))\n" +
			"sensitive(\"…\") keeps it here, and hides it in all outputs",
	})
}

// constant returns the value of an expression that refers to nothing, and reads nothing.
func (l *loader) constant(e hcl.Expression) (cty.Value, bool) {
	if len(e.Variables()) > 0 {
		return cty.DynamicVal, false
	}
	v, diags := protected(e, l.root) // which has no functions that read
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
