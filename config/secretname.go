package config

import (
	"regexp"
	"slices"
	"strings"
)

// isSecretName reports whether what has this name is secret: "db_password", "X-Api-Key",
// "authToken". The name of a file or of another fact about a secret is not.
func isSecretName(name string) bool {
	words := nameWord.FindAllString(name, -1)
	for i := range words {
		words[i] = strings.ToLower(words[i])
	}
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

// nameWord matches a word of a name: those of "X-Api-Key" and of "xApiKey" are x, api and key.
var nameWord = regexp.MustCompile(`\p{Lu}+[\p{Ll}\p{Lo}\p{N}]*|[\p{Ll}\p{Lo}\p{N}]+`)
