package cli

import (
	"crypto/sha256"
	"encoding/hex"
	"fmt"
	"strings"

	"github.com/sonde-probe/sonde/internal/files"
)

// Stdin names standard input as an argument and in diagnostics.
const Stdin = "-"

// maxToken limits the size of a token file, in bytes.
const maxToken = 64 << 10

// ReadToken returns the content of a token file without surrounding white space. It returns an error for an empty file, and ""
// without error if name is "".
func ReadToken(name string) (string, error) {
	if name == "" {
		return "", nil
	}
	text, err := files.Read(name, maxToken)
	if err != nil {
		return "", fmt.Errorf("token file: %w", err)
	}
	token := strings.TrimSpace(string(text))
	if token == "" {
		return "", fmt.Errorf("token file: %s is empty", name)
	}
	return token, nil
}

// SHA256 returns the SHA-256 of b in hexadecimal digits.
func SHA256(b []byte) string {
	s := sha256.Sum256(b)
	return hex.EncodeToString(s[:])
}
