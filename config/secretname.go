package config

import (
	"slices"
	"strings"
	"unicode"
)

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
