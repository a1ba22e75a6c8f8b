package revision

import (
	"bytes"
	"cmp"
	"compress/gzip"
	"crypto/sha256"
	"encoding/hex"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"io/fs"
	"maps"
	"slices"
	"strings"
	"unicode/utf8"

	"github.com/sonde-probe/sonde/internal/bytesize"
)

// Limits of a Bundle.
const (
	maxFiles    = 4096
	maxFileName = 512        // bytes
	MaxContent  = 64 << 20   // bytes of all files together
	maxSize     = 1400 << 10 // bytes of the compressed bundle: etcd accepts requests of 1.5 MiB
)

// Bundle is the files of a configuration in one folder. File names are relative to it, with slashes.
type Bundle struct {
	Sources []string          `json:"sources"` // names of the configuration files among Files, in the order in which they are read
	Files   map[string][]byte `json:"files"`   // all files, by name
}

// check returns an error if the bundle is invalid.
func (b *Bundle) check() error {
	switch {
	case len(b.Sources) == 0:
		return errors.New("it has no configuration file")
	case len(b.Files) > maxFiles:
		return fmt.Errorf("it has %d files, at most %d are allowed", len(b.Files), maxFiles)
	}
	for i, name := range b.Sources {
		if _, found := b.Files[name]; !found {
			return fmt.Errorf("configuration file %.200q is missing", name)
		}
		if slices.Contains(b.Sources[:i], name) {
			return fmt.Errorf("it has configuration file %.200q twice", name)
		}
	}
	size := 0
	for name, content := range b.Files {
		if !fs.ValidPath(name) || name == "." || !utf8.ValidString(name) || strings.Contains(name, `\`) || len(name) > maxFileName {
			return fmt.Errorf("file name %.200q must be relative to the folder of the configuration, without dots, in UTF-8, and of at most %d bytes", name, maxFileName)
		}
		size += len(content)
	}
	if size > MaxContent {
		return fmt.Errorf("its files have %s together, at most %s are allowed", rounded(size), rounded(MaxContent))
	}
	return nil
}

// Encode returns the bundle as compressed JSON, and the digest of the JSON: the same files have the same digest.
func (b *Bundle) Encode() (compressed []byte, digest string, err error) {
	if err := b.check(); err != nil {
		return nil, "", err
	}
	text, err := json.Marshal(b)
	if err != nil {
		return nil, "", err
	}
	var to bytes.Buffer
	z := gzip.NewWriter(&to)
	if _, err := z.Write(text); err != nil {
		return nil, "", err
	}
	if err := z.Close(); err != nil {
		return nil, "", err
	}
	if to.Len() > maxSize {
		largest := slices.MaxFunc(slices.Sorted(maps.Keys(b.Files)), func(x, y string) int { return cmp.Compare(len(b.Files[x]), len(b.Files[y])) })
		return nil, "", fmt.Errorf("it has %s when compressed, and etcd takes %s at most: install large files, such as plugins, on each engine, and name them by absolute paths; the largest is %.200q with %s",
			rounded(to.Len()), rounded(maxSize), largest, rounded(len(b.Files[largest])))
	}
	return to.Bytes(), digestOf(text), nil
}

func rounded(size int) string { return bytesize.Size(size).Rounded() }

// maxText bounds the JSON of a bundle: files in base64, names, and syntax.
const maxText = MaxContent/3*4 + maxFiles*2*(6*maxFileName+16)

// decode returns the bundle that Encode encoded, after it has verified the digest.
func decode(compressed []byte, digest string) (*Bundle, error) {
	z, err := gzip.NewReader(bytes.NewReader(compressed))
	if err != nil {
		return nil, err
	}
	text, err := io.ReadAll(io.LimitReader(z, maxText))
	switch {
	case err != nil:
		return nil, err
	case digestOf(text) != digest:
		return nil, errors.New("wrong digest")
	}
	b := &Bundle{}
	if err := json.Unmarshal(text, b); err != nil {
		return nil, err
	}
	return b, b.check()
}

func digestOf(text []byte) string {
	sum := sha256.Sum256(text)
	return hex.EncodeToString(sum[:])
}
