// Package httpauth has the credentials that requests by HTTP are sent with, of the handler http and of receivers of
// notifications, and checks headers for them and for pre_stop.
package httpauth

import (
	"encoding/base64"
	"fmt"
	"strings"

	"github.com/sonde-probe/sonde/internal/files"
	"github.com/sonde-probe/sonde/probe"
)

// Basic is a basic_auth block (RFC 7617).
type Basic struct {
	Username string `hcl:"username" doc:"name to authenticate with, without a colon"`
	Password string `hcl:"password,optional,sensitive" doc:"password to authenticate with" default:"empty"`
}

// Auth is what a request is authenticated with. The zero Auth is nothing.
type Auth struct {
	Basic           *Basic // nil for none
	BearerTokenFile string // name of a file with a token; empty for none
}

// Bounds of credentials, in bytes.
const (
	maxBasic = 1 << 10
	maxToken = 16 << 10 // as of a file; a request's head has few more
)

// Check returns what is wrong: a *probe.FieldError, or nil. Headers are those that are configured besides. It reads the file. No
// error has a password or a token.
func (a Auth) Check(headers map[string][]string) error {
	if a == (Auth{}) {
		return nil
	}
	field := "bearer_token_file"
	if a.Basic != nil {
		field = "basic_auth"
	}
	for name := range headers {
		if strings.EqualFold(name, "Authorization") {
			return &probe.FieldError{Field: field, Problem: "cannot be combined with the header Authorization, which it sets", Plain: true}
		}
	}
	if a.Basic == nil {
		if _, err := a.token(); err != nil {
			return probe.FieldErrorf(field, "%v", err)
		}
		return nil
	}
	text := a.Basic.Username + a.Basic.Password
	switch {
	case a.BearerTokenFile != "":
		return &probe.FieldError{Field: "bearer_token_file", Problem: "cannot be combined with basic_auth: a request has one Authorization", Plain: true}
	case a.Basic.Username == "":
		return &probe.FieldError{Field: "basic_auth.username", Problem: "must not be empty", Plain: true}
	case strings.Contains(a.Basic.Username, ":"):
		return &probe.FieldError{Field: "basic_auth.username", Problem: "must not contain a colon, which ends it", Plain: true}
	case len(text) > maxBasic:
		return &probe.FieldError{Field: "basic_auth.password", Problem: fmt.Sprintf("and username have %d bytes, at most %d are allowed", len(text), maxBasic), Plain: true}
	case strings.TrimRight(a.Basic.Password, "\r\n") != a.Basic.Password:
		return &probe.FieldError{Field: "basic_auth.password", Problem: "has a line break at its end", Hint: `a file ends with one: write trimspace(file("…"))`, Plain: true}
	case strings.ContainsFunc(text, isControl):
		return &probe.FieldError{Field: "basic_auth", Problem: "has control characters", Plain: true}
	}
	return nil
}

func isControl(r rune) bool { return r < ' ' || r == 0x7f }

// Header returns the value of the header Authorization; "" for none. It reads the file with the token, which may be replaced at any
// time.
func (a Auth) Header() (string, error) {
	switch {
	case a.Basic != nil:
		return "Basic " + base64.StdEncoding.EncodeToString([]byte(a.Basic.Username+":"+a.Basic.Password)), nil
	case a.BearerTokenFile == "":
		return "", nil
	}
	token, err := a.token()
	if err != nil {
		return "", fmt.Errorf("bearer_token_file %w", err)
	}
	return "Bearer " + token, nil
}

// token reads the file with the token.
func (a Auth) token() (string, error) {
	text, err := files.ReadRegular(a.BearerTokenFile, maxToken)
	if err != nil {
		return "", fmt.Errorf("cannot be read: %w", err)
	}
	token := strings.TrimSpace(string(text))
	switch {
	case token == "":
		return "", fmt.Errorf("is an empty file: %s", a.BearerTokenFile)
	case strings.ContainsFunc(token, func(r rune) bool { return r <= ' ' || r > '~' }):
		return "", fmt.Errorf("has more than a token: %s must have one line of printable ASCII", a.BearerTokenFile)
	}
	return token, nil
}

// Hide replaces the credentials of a header in a text that somebody else has made, who may have repeated it.
func Hide(text, header string) string {
	_, credentials, _ := strings.Cut(header, " ")
	if credentials = strings.TrimRight(credentials, "="); credentials == "" { // the end of base64
		return text
	}
	return strings.ReplaceAll(text, credentials, "(sensitive)")
}
