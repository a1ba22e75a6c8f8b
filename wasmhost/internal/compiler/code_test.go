package compiler

import (
	"bytes"
	"context"
	"errors"
	"io"
	"testing"
	"testing/iotest"

	"github.com/tetratelabs/wazero"
)

// add is a module with one exported function, which adds two numbers.
var add = []byte("\x00asm\x01\x00\x00\x00\x01\x07\x01\x60\x02\x7f\x7f\x01\x7f\x03\x02\x01\x00\x07\x07\x01\x03add\x00\x00\x0a\x09\x01\x07\x00\x20\x00\x20\x01\x6a\x0b")

// compileWith compiles add, or loads its code, and returns the sum of 1 and 2.
func compileWith(t *testing.T, from io.Reader, to io.Writer) (uint64, error) {
	t.Helper()
	ctx := t.Context()
	cache, err := NewCache(from, to)
	if err != nil {
		t.Fatal(err)
	}
	r := wazero.NewRuntimeWithConfig(ctx, RuntimeConfig().WithCompilationCache(cache))
	defer r.Close(context.Background())
	m, err := r.Instantiate(ctx, add)
	if err != nil {
		return 0, err
	}
	sum, err := m.ExportedFunction("add").Call(ctx, 1, 2)
	if err != nil {
		t.Fatal(err)
	}
	return sum[0], nil
}

func TestCodeIsPassedThroughAStream(t *testing.T) {
	var written, again bytes.Buffer
	if sum, err := compileWith(t, nil, &written); sum != 3 || err != nil || written.Len() == 0 {
		t.Fatalf("got %d, %v, and %d bytes of code", sum, err, written.Len())
	}
	code := written.Bytes()
	if sum, err := compileWith(t, iotest.OneByteReader(bytes.NewReader(code)), &again); sum != 3 || err != nil || again.Len() > 0 {
		t.Errorf("from its code: got %d, %v, and %d bytes of new code", sum, err, again.Len())
	}
	other := bytes.Clone(code)
	other[0]++
	for name, from := range map[string][]byte{"none": nil, "a part of a key": code[:9], "that of another module": other} {
		again.Reset()
		if sum, err := compileWith(t, bytes.NewReader(from), &again); sum != 3 || err != nil || !bytes.Equal(again.Bytes(), code) {
			t.Errorf("%s: got %d, %v, and %d bytes of new code", name, sum, err, again.Len())
		}
	}
	damaged := bytes.Clone(code)
	damaged[len(code)/2] ^= 0xff
	for name, from := range map[string][]byte{"damaged": damaged, "cut": code[:len(code)-9]} {
		if sum, err := compileWith(t, bytes.NewReader(from), nil); err == nil {
			t.Errorf("%s: got %d", name, sum)
		}
	}
}

// fullWriter is a writer without space left.
type fullWriter struct{}

var errFull = errors.New("no space left on device")

func (fullWriter) Write([]byte) (int, error) { return 0, errFull }

func TestCodeThatCannotBeWrittenIsToldFromAnInvalidModule(t *testing.T) {
	if _, err := compileWith(t, nil, fullWriter{}); !errors.Is(err, errOutput) || !errors.Is(err, errFull) {
		t.Errorf("got %v", err)
	}
}
