package embedded

import (
	"bytes"
	"compress/gzip"
	"errors"
	"testing"
	"testing/fstest"
)

func TestAPluginThatIsBuiltInIsUncompressed(t *testing.T) {
	var packed bytes.Buffer
	z := gzip.NewWriter(&packed)
	z.Write([]byte("\x00asm"))
	z.Close()
	files := fstest.MapFS{"module/grpc.wasm.gz": {Data: packed.Bytes()}, "module/starlark.wasm.gz": {Data: []byte("cut")}}
	if got, err := read(files, "grpc", ErrNoGRPC); err != nil || string(got) != "\x00asm" {
		t.Errorf("got %q, %v", got, err)
	}
	if _, err := read(files, "starlark", ErrNoStarlark); err == nil || errors.Is(err, ErrNoStarlark) {
		t.Errorf("the error of a damaged file is %v", err)
	}
}

func TestAProgramBuiltWithoutAPluginSaysHowToGetIt(t *testing.T) {
	if _, err := read(fstest.MapFS{"module/README.md": {}}, "starlark", ErrNoStarlark); !errors.Is(err, ErrNoStarlark) {
		t.Errorf("the error is %v", err)
	}
}
