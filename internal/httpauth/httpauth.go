// Package httpauth provides the credentials of HTTP requests, for the handler http and receivers of notifications, and
// validates headers, for the same and for pre_stop.
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

// Auth has the credentials of a request. The zero Auth has none.
type Auth struct {
	Basic           *Basic // nil for none
	BearerTokenFile string // name of a file with a token; empty for none
}

// Maximum sizes of credentials, in bytes.
const (
	maxBasic = 1 << 10
	maxToken = 16 << 10 // size of the file; a server rarely accepts longer headers
)

// Check validates the credentials. It returns a *probe.FieldError, or nil; an error never contains a password or a
// token. headers are the other configured headers of the request. Check reads the file with the token.
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

// Header returns the value of the header Authorization, or "" for none. It reads the file with the token at each call,
// since the file may be replaced at any time.
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
		return "", fmt.Errorf("has more than a token: %s must contain one line of printable ASCII without spaces", a.BearerTokenFile)
	}
	return token, nil
}

// Hide replaces the credentials of a header in an untrusted text, which may repeat them.
func Hide(text, header string) string {
	_, credentials, _ := strings.Cut(header, " ")
	if credentials = strings.TrimRight(credentials, "="); credentials == "" { // "=" is the padding of base64
		return text
	}
	return strings.ReplaceAll(text, credentials, "(sensitive)")
}
