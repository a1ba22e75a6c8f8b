package cli

import (
	"crypto/sha256"
	"encoding/hex"
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"strings"

	"github.com/sonde-probe/sonde/internal/files"
)

// Stdin names standard input as an argument and in diagnostics.
const Stdin = "-"

// maxToken bounds the file of a token, in bytes.
const maxToken = 64 << 10

// ReadToken returns the text of a token file without surrounding white space. It must
// not be empty. Without a name there is no token.
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

// ReplaceFile writes a file atomically: readers see the old text or the new one.
// A symbolic link is kept, and the file that it points to is replaced.
func ReplaceFile(name string, text []byte, mode os.FileMode) (err error) {
	if target, linkErr := filepath.EvalSymlinks(name); linkErr == nil {
		name = target
	}
	f, err := os.CreateTemp(filepath.Dir(name), "."+filepath.Base(name)+".*")
	if err != nil {
		return err
	}
	defer func() {
		if err != nil {
			err = errors.Join(err, os.Remove(f.Name()))
		}
	}()
	_, err = f.Write(text)
	if err = errors.Join(err, f.Chmod(mode), f.Sync(), f.Close()); err != nil {
		return err
	}
	return os.Rename(f.Name(), name)
}

// SHA256 returns the SHA-256 of b in hexadecimal digits.
func SHA256(b []byte) string {
	s := sha256.Sum256(b)
	return hex.EncodeToString(s[:])
}
