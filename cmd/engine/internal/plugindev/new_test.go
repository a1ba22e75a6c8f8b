package plugindev

import (
	"bytes"
	"flag"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"
)

var rewriteSDK = flag.Bool("rewrite-sdk", false, "copy the SDKs of guest for sonde plugin new")

// sdks lists by language the files in guest that form its SDK, without tests.
var sdks = map[string][]string{
	"go":   {"go.mod", "*.go"},
	"c":    {"c/*.h"},
	"rust": {"rust/src/*.rs"},
	"as":   {"as/*.ts"},
}

func TestSDKCopiesEqualGuest(t *testing.T) {
	for lang, patterns := range sdks {
		dir := filepath.Join("sdk", lang)
		want := sdkFiles(t, patterns)
		if *rewriteSDK {
			copySDK(t, dir, want)
		}
		entries, err := os.ReadDir(dir)
		if err != nil {
			t.Fatal(err)
		}
		var names []string
		for _, e := range entries {
			names = append(names, strings.TrimSuffix(e.Name(), ".txt"))
			got, err := os.ReadFile(filepath.Join(dir, e.Name()))
			if err != nil {
				t.Fatal(err)
			}
			if !bytes.Equal(got, want[names[len(names)-1]]) {
				t.Errorf("%s is out of date: run the test with -rewrite-sdk", filepath.Join(dir, e.Name()))
			}
		}
		for name := range want {
			if !slices.Contains(names, name) {
				t.Errorf("%s lacks %s: run the test with -rewrite-sdk", dir, name)
			}
		}
	}
}

func sdkFiles(t *testing.T, patterns []string) map[string][]byte {
	t.Helper()
	files := make(map[string][]byte)
	for _, pattern := range patterns {
		found, err := filepath.Glob(filepath.Join("..", "..", "..", "..", "guest", filepath.FromSlash(pattern)))
		if err != nil || len(found) == 0 {
			t.Fatalf("guest/%s: no files (%v)", pattern, err)
		}
		for _, name := range found {
			if strings.HasSuffix(name, "_test.go") {
				continue
			}
			text, err := os.ReadFile(name)
			if err != nil {
				t.Fatal(err)
			}
			files[filepath.Base(name)] = text
		}
	}
	return files
}

func copySDK(t *testing.T, dir string, files map[string][]byte) {
	t.Helper()
	if err := os.RemoveAll(dir); err != nil {
		t.Fatal(err)
	}
	if err := os.MkdirAll(dir, 0o755); err != nil {
		t.Fatal(err)
	}
	for name, text := range files {
		if err := os.WriteFile(filepath.Join(dir, name+".txt"), text, 0o644); err != nil {
			t.Fatal(err)
		}
	}
}
