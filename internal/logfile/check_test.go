package logfile

import (
	"os"
	"path/filepath"
	"strings"
	"syscall"
	"testing"
)

// Check returns the error that a write would return, and creates nothing.
func TestAFileIsCheckedWithoutIt(t *testing.T) {
	dir := t.TempDir()
	in := func(name string) string { return filepath.Join(dir, name) }
	for _, err := range []error{
		os.Mkdir(in("directory"), 0o700), syscall.Mkfifo(in("pipe"), 0o600), os.Symlink(in("other"), in("link")), os.WriteFile(in("file"), nil, 0o600),
		os.Mkdir(in("closed"), 0o500), os.WriteFile(in("closed file"), nil, 0o400), os.Symlink(in("directory"), in("linked directory")),
	} {
		if err != nil {
			t.Fatal(err)
		}
	}
	wants := map[string]string{
		"new": "", "file": "", "directory/new": "", "linked directory/other": "",
		"missing/new": " does not exist", "directory": "is not a regular file", "pipe": "is not a regular file", "link": "is a symbolic link",
		"file/new": "not a directory", "pipe/new": "not a directory",
	}
	if os.Getuid() != 0 {
		wants["closed/new"], wants["closed file"] = "is not writable for this user: permission denied", "is not writable for this user: permission denied"
	}
	for name, want := range wants {
		err := Check(in(name))
		if err == nil != (want == "") || err != nil && !strings.Contains(err.Error(), want) {
			t.Errorf("%s: got %v, want %q", name, err, want)
		}
		if strings.HasSuffix(name, "new") {
			if _, err := os.Lstat(in(name)); err == nil {
				t.Errorf("%s was created", name)
			}
		}
		f := File{config: Config{Path: in(name), MaxSize: 1 << 20, MaxFiles: 1}}
		if _, writing := f.append([]byte("x\n")); writing == nil != (err == nil) {
			t.Errorf("%s: writing says %v, and the check %v", name, writing, err)
		}
	}
}
