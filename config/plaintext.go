package config

import (
	"slices"
	"strings"
	"unicode"

	"github.com/hashicorp/hcl/v2"
	"github.com/zclconf/go-cty/cty"

	"github.com/sonde-probe/sonde/config/internal/alternative"
	"github.com/sonde-probe/sonde/config/internal/tree"
)

// warnOfPlainText warns of secrets that are written in a file: of arguments, locals and
// entries of maps whose names say that they are secret, and of passwords in URLs. It looks
// at the text once, and not at each element of a loop.
func (l *loader) warnOfPlainText(body tree.Body) {
	secret := make(map[string]bool)
	for name, value := range body.Values() {
		is, known := secret[name]
		if !known {
			is = isSecretName(name)
			secret[name] = is
		}
		if is {
			l.warnIfWritten(value, name+" is a secret")
		}
		for _, password := range l.urlPasswords(value) {
			l.warnOf(value, password, name+hasURLWithPassword, "")
		}
		l.disclosure.checkMade(name, value)
	}
}

// warnIfWritten warns of a secret that is written in the text. One that comes from a file,
// the environment or a variable has no warning, and neither has one that is marked as
// sensitive. In a file that is to be pushed it is an error, also if it comes from another one.
func (l *loader) warnIfWritten(e hcl.Expression, what string) {
	if !l.disclosure.isPushed(e) && len(e.Variables()) == 0 {
		v, diags := protected(e, l.root) // in which nothing can be read
		if diags.HasErrors() || containsMarked(v) || !isWritten(v) {
			return
		}
		l.warn(e, what)
		return
	}
	l.warnOf(e, e, what, "\nif it is no secret, write it as a local with another name, and refer to that")
}

// warnOf warns of an expression if the text of a secret is written in it, which is all of the expression or a part. The
// hint is for a file that is to be pushed.
func (l *loader) warnOf(e, secret hcl.Expression, what, hint string) {
	v := l.withoutNames(secret, true)
	switch w := disclosedIn(v, secretWhole); {
	case w == nil || !w.isAlternative && !isWritten(v):
	case l.disclosure.isPushed(e):
		l.disclosure.report(nil, e, what, hint, *w)
	case !containsMarked(v) && !l.isSensitive(e, l.root):
		l.warn(e, what)
	}
}

func (l *loader) warn(e hcl.Expression, what string) {
	l.secret(e.Range())
	l.add(report{
		severity: Warning, at: e.Range(), summary: what + " in plain text",
		hint: "read it from elsewhere: a variable with sensitive = true, sensitive(env(\"…\")) or sensitive(trimspace(file(\"…\")))\n" +
			"sensitive(\"…\") keeps it here, and hides it in all outputs",
	})
}

// isWritten reports whether a value is a text, or a number that is long enough, which is a secret by its name.
func isWritten(v cty.Value) bool {
	v, _ = v.Unmark()
	switch {
	case !v.IsKnown() || v.IsNull():
	case v.Type() == cty.String:
		return strings.TrimSpace(v.AsString()) != ""
	case v.Type() == cty.Number:
		return alternative.IsLong(v)
	}
	return false
}

// withoutNames returns what is known of an expression without the values that it refers to: these have names of their
// own. What an engine reads is unknown. ByName is that of the Tracker.
func (l *loader) withoutNames(e hcl.Expression, byName bool) cty.Value {
	ctx := l.root.NewChild()
	if l.disclosure.isPushed(e) {
		ctx = l.disclosure.ofFile(e.Range().Filename).NewChild()
	}
	ctx.Variables = make(map[string]cty.Value)
	for _, t := range e.Variables() {
		ctx.Variables[t.RootName()] = cty.DynamicVal
	}
	tracker := alternative.Tracker{IsSecretName: isSecretName, IsConstant: func(hcl.Expression) bool { return false }, ByName: byName}
	v, diags := protected(tracker.Expression(e), ctx)
	if diags.HasErrors() {
		return cty.DynamicVal
	}
	return v
}

// isSecretName reports whether what has this name is secret: "db_password", "X-Api-Key",
// "authToken". The name of a file or of another fact about a secret is not.
func isSecretName(name string) bool {
	words := wordsOf(name)
	if len(words) == 0 || slices.Contains(aboutSecrets, words[len(words)-1]) {
		return false
	}
	for i, word := range words {
		if slices.Contains(secretWords, word) || strings.HasSuffix(word, "password") { // PGPASSWORD
			return true
		}
		if i > 0 && word == "key" && slices.Contains(keyWords, words[i-1]) {
			return true
		}
	}
	return false
}

var (
	secretWords  = []string{"passwd", "passphrase", "pwd", "secret", "token", "credential", "credentials", "apikey", "authorization", "cookie"}
	keyWords     = []string{"api", "private", "access", "auth", "secret"}
	aboutSecrets = []string{"file", "path", "dir", "url", "uri", "name", "id", "type", "header", "field", "prefix", "length", "ttl"}
)

// wordsOf returns the words of a name in lower case: those of "X-Api-Key" and of
// "xApiKey" are x, api and key.
func wordsOf(name string) (words []string) {
	var word []rune
	end := func() {
		if len(word) > 0 {
			words = append(words, strings.ToLower(string(word)))
		}
		word = nil
	}
	for _, r := range name {
		switch {
		case !unicode.IsLetter(r) && !unicode.IsDigit(r):
			end()
			continue
		case unicode.IsUpper(r) && len(word) > 0 && unicode.IsLower(word[len(word)-1]):
			end()
		}
		word = append(word, r)
	}
	end()
	return words
}
