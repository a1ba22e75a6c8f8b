package compiler

import (
	"bufio"
	"crypto/sha256"
	"errors"
	"fmt"
	"io"
	"reflect"
	"unsafe"

	"github.com/tetratelabs/wazero"
)

// code is a cache for wazero that contains the compiled code of one module only. A stream consists
// of the key, by which wazero identifies the module, its own configuration and the processor, and
// of wazero's code. It must be used once only.
type code struct {
	from io.Reader // nil if there is no code
	to   io.Writer // nil if new code is discarded
}

type key = [sha256.Size]byte

// errOutput means that compiled code could not be written.
var errOutput = errors.New("compiled code cannot be written")

// Get returns the code if its key is want.
func (c *code) Get(want key) (content io.ReadCloser, ok bool, err error) {
	if c.from == nil {
		return nil, false, nil
	}
	r := fullReader{bufio.NewReaderSize(c.from, 64<<10)}
	c.from = nil
	var have key
	if _, err := r.Read(have[:]); err != nil && !errors.Is(err, io.EOF) {
		return nil, false, err
	}
	return io.NopCloser(r), have == want, nil
}

// Add writes code.
func (c *code) Add(k key, content io.Reader) error {
	if c.to == nil {
		return nil
	}
	_, err := c.to.Write(k[:])
	if err == nil {
		_, err = io.Copy(c.to, content)
	}
	c.to = nil
	if err != nil {
		return fmt.Errorf("%w: %w", errOutput, err)
	}
	return nil
}

// Delete does nothing. wazero calls it if the code from Get is for another version of wazero.
func (c *code) Delete(key) error { return nil }

// fullReader fills the whole buffer on each read, as wazero expects of a file.
type fullReader struct{ *bufio.Reader }

func (r fullReader) Read(p []byte) (int, error) {
	n, err := io.ReadFull(r.Reader, p)
	if errors.Is(err, io.ErrUnexpectedEOF) {
		err = io.EOF
	}
	return n, err
}

// NewCache returns a wazero cache for the code of one module. It reads the code from from, unless
// that is nil or has the code of another module, and writes new code to to, unless that is nil.
//
// wazero's own caches are directories. They need a directory that no other user can modify, which
// some containers lack. The interface that they implement is not exported, so NewCache sets the
// field by reflection.
func NewCache(from io.Reader, to io.Writer) (wazero.CompilationCache, error) {
	c := wazero.NewCompilationCache()
	own := reflect.ValueOf(&code{from, to})
	if v := reflect.ValueOf(c); v.Kind() == reflect.Pointer && v.Elem().Kind() == reflect.Struct {
		field := v.Elem().FieldByName("fileCache")
		if field.IsValid() && field.Kind() == reflect.Interface && own.Type().Implements(field.Type()) {
			reflect.NewAt(field.Type(), unsafe.Pointer(field.UnsafeAddr())).Elem().Set(own)
			return c, nil
		}
	}
	return nil, errors.New("built with an unsupported version of wazero: use the version in go.mod")
}
