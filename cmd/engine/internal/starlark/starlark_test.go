package starlark

import (
	"errors"
	"testing"
	"testing/fstest"
)

func TestAProgramBuiltWithoutTheInterpreterSaysHowToGetIt(t *testing.T) {
	files := fstest.MapFS{"module/README.md": {}}
	if _, err := moduleIn(files); !errors.Is(err, errMissing) {
		t.Errorf("the error is %v", err)
	}
}
