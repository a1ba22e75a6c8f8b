package document_test

import (
	"bytes"
	"fmt"
	"os"
	"path/filepath"
	"testing"

	"github.com/sonde-probe/sonde/config"
	"github.com/sonde-probe/sonde/config/document"
	"github.com/sonde-probe/sonde/tests/tier"
)

func ExampleFormat() {
	text, _ := document.Format(config.Source{Name: "config.hcl", Bytes: []byte("engine {\nlisten=\"127.0.0.1:9650\"\n  concurrency = 8 # at once\n}\n")})
	fmt.Print(string(text))
	// Output:
	// engine {
	//   listen      = "127.0.0.1:9650"
	//   concurrency = 8 # at once
	// }
}

func TestFormattingIsIdempotent(t *testing.T) {
	tier.Slow(t)
	paths, err := filepath.Glob("../testdata/*/*.hcl")
	if err != nil || len(paths) == 0 {
		t.Fatal("there are no configurations", err)
	}
	for _, path := range paths {
		text, err := os.ReadFile(path)
		if err != nil {
			t.Fatal(err)
		}
		once, diags := document.Format(config.Source{Name: path, Bytes: text})
		if diags.HasErrors() {
			if !bytes.Equal(once, text) {
				t.Errorf("%s has errors and was changed", path)
			}
			continue
		}
		if twice, _ := document.Format(config.Source{Name: path, Bytes: once}); !bytes.Equal(once, twice) {
			t.Errorf("%s changes when it is formatted again", path)
		}
	}
}

func TestJSONIsNotFormatted(t *testing.T) {
	text := []byte("{ \"engine\":{} }")
	if got, diags := document.Format(config.Source{Name: "a.json", Bytes: text}); !bytes.Equal(got, text) || len(diags) != 0 {
		t.Errorf("it became %s, with %v", got, diags)
	}
}
