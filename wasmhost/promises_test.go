package wasmhost_test

import (
	"io/fs"
	"os"
	"path/filepath"
	"regexp"
	"strings"
	"testing"

	"github.com/sonde-probe/sonde/probe"
	"github.com/sonde-probe/sonde/wasmhost"
	"github.com/sonde-probe/sonde/wasmhost/abi"
)

// Each promise in the package documentation, which is a list item, names the tests that verify it.
func TestPromisesNameTheirTests(t *testing.T) {
	var tests strings.Builder
	err := filepath.WalkDir(".", func(path string, _ fs.DirEntry, err error) error {
		if err != nil || !strings.HasSuffix(path, "_test.go") {
			return err
		}
		text, err := os.ReadFile(path)
		tests.Write(text)
		return err
	})
	if err != nil {
		t.Fatal(err)
	}
	doc, err := os.ReadFile("doc.go")
	if err != nil {
		t.Fatal(err)
	}
	names := regexp.MustCompile(`Test[A-Z]\w+`)
	promises := strings.Split(string(doc), "\n//   - ")[1:]
	for _, promise := range promises {
		promise, _, _ = strings.Cut(promise, "\n//\n") // the end of the list
		all := names.FindAllString(promise, -1)
		if len(all) == 0 {
			t.Errorf("no test is named: %s", promise)
		}
		for _, name := range all {
			if !strings.Contains(tests.String(), "func "+name+"(") {
				t.Errorf("there is no test %s", name)
			}
		}
	}
	if len(promises) < 20 {
		t.Errorf("%d promises were found", len(promises))
	}
}

func TestAPluginSeesGrantedVariablesOnly(t *testing.T) {
	t.Setenv("SONDE_TEST_GRANTED", "yes")
	t.Setenv("SONDE_TEST_SECRET", "no")
	p := load(t, wasmhost.Config{
		Module: wat(`(import "wasi_snapshot_preview1" "environ_sizes_get" (func $sizes (param i32 i32) (result i32)))
			(func $run (result i32) i32.const 0 i32.const 4 call $sizes drop
				i32.const 0 i32.load i32.const 1 i32.eq i32.const 4 i32.load i32.const %d i32.eq i32.mul)`, len("SONDE_TEST_GRANTED=yes")+1),
		Grant: wasmhost.Grant{Env: []string{"SONDE_TEST_GRANTED", "SONDE_TEST_ABSENT"}},
	})
	wantResult(t, attempt(t, handler(t, p, nil), probe.Target{Name: "web"}, plenty), probe.Success, "")
}

// No descriptor of a plugin is a directory, and no file can be opened.
func TestAPluginSeesNoFiles(t *testing.T) {
	got := try(t, wat(`(import "wasi_snapshot_preview1" "fd_prestat_get" (func $prestat (param i32 i32) (result i32)))
		(import "wasi_snapshot_preview1" "path_open" (func $open (param i32 i32 i32 i32 i32 i64 i64 i32 i32) (result i32)))
		(data 0 "/etc/passwd")
		(func $run (result i32) (local $fd i32)
			loop
				local.get $fd i32.const 64 call $prestat i32.const %d i32.ne if i32.const 3 return end
				local.get $fd i32.const 0 i32.const 0 i32.const 11 i32.const 0 i64.const -1 i64.const -1 i32.const 0 i32.const 64 call $open
				i32.const %d i32.ne if i32.const 3 return end
				local.get $fd i32.const 1 i32.add local.tee $fd i32.const 2000 i32.lt_s br_if 0
			end i32.const 1)`, int(abi.EBADF), int(abi.ENOSYS)))
	wantResult(t, got, probe.Success, "")
}
