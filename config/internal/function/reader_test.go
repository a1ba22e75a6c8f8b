package function

import (
	"os"
	"path/filepath"
	"strings"
	"testing"

	"github.com/zclconf/go-cty/cty"

	"github.com/sonde-probe/sonde/internal/files"
)

func call(t *testing.T, dir, name string, args ...cty.Value) (cty.Value, error) {
	t.Helper()
	r := Reader{Dir: dir, Env: func(string) (string, bool) { return "", false }, ReadFile: files.ReadRegular, IsFile: files.IsRegular, Pure: Table()}
	return r.Table()[name].Call(args)
}

func TestRelativePathsStartAtTheFolderOfTheCaller(t *testing.T) {
	dir := t.TempDir()
	if err := os.WriteFile(filepath.Join(dir, "a.txt"), []byte("hello"), 0o600); err != nil {
		t.Fatal(err)
	}
	for _, path := range []string{"a.txt", filepath.Join(dir, "a.txt")} {
		v, err := call(t, dir, "file", cty.StringVal(path))
		if err != nil || v.AsString() != "hello" {
			t.Errorf("file(%q) is %#v, %v", path, v, err)
		}
	}
}

// A byte order mark at the begin of a file is no part of its text: the first column of a table would have it in its name.
func TestAByteOrderMarkIsNoText(t *testing.T) {
	dir := t.TempDir()
	for name, text := range map[string]string{"a.csv": "\ufeffname,port\na,80\n", "a.json": "\ufeff[{\"name\": \"a\"}]", "a.yaml": "\ufeff- name: a\n"} {
		if err := os.WriteFile(filepath.Join(dir, name), []byte(text), 0o600); err != nil {
			t.Fatal(err)
		}
		content, err := call(t, dir, "file", cty.StringVal(name))
		if err != nil {
			t.Fatal(err)
		}
		read, err := Table()[strings.TrimPrefix(filepath.Ext(name), ".")+"decode"].Call([]cty.Value{content})
		if err != nil || read.AsValueSlice()[0].GetAttr("name").AsString() != "a" {
			t.Errorf("%s: %#v, %v", name, read, err)
		}
	}
}

func TestFilesThatAreNotShortTextsAreRejected(t *testing.T) {
	dir := t.TempDir()
	for name, text := range map[string]string{"long": strings.Repeat("x", maxFileSize+1), "binary": "\xff\xfe"} {
		if err := os.WriteFile(filepath.Join(dir, name), []byte(text), 0o600); err != nil {
			t.Fatal(err)
		}
	}
	for name, want := range map[string]string{"long": "too large", "binary": "not UTF-8", "none": "no file", ".": "not a regular file"} {
		if _, err := call(t, dir, "file", cty.StringVal(name)); err == nil || !strings.Contains(err.Error(), want) {
			t.Errorf("the error of %q is %v", name, err)
		}
	}
}

func TestTemplatesSeeOnlyTheirVariables(t *testing.T) {
	dir := t.TempDir()
	if err := os.WriteFile(filepath.Join(dir, "t"), []byte("${a} ${upper(a)}"), 0o600); err != nil {
		t.Fatal(err)
	}
	v, err := call(t, dir, "templatefile", cty.StringVal("t"), cty.ObjectVal(map[string]cty.Value{"a": cty.StringVal("x")}))
	if err != nil || v.AsString() != "x X" {
		t.Errorf("it is %#v, %v", v, err)
	}
	if _, err := call(t, dir, "templatefile", cty.StringVal("t"), cty.EmptyObjectVal); err == nil {
		t.Error("a missing variable is no error")
	}
}

func TestSensitiveValuesStaySensitive(t *testing.T) {
	v, err := Table()["upper"].Call([]cty.Value{cty.StringVal("a").Mark(Sensitive)})
	if err != nil || !v.HasMark(Sensitive) {
		t.Errorf("it is %#v, %v", v, err)
	}
}
