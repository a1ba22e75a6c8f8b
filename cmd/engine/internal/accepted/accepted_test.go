package accepted

import (
	"errors"
	"os"
	"path/filepath"
	"reflect"
	"strings"
	"testing"
	"time"

	"github.com/sonde-probe/sonde/config"
	"github.com/sonde-probe/sonde/fleet/revision"
)

// keep writes a Kept to a temporary file.
func keep(t *testing.T, k Kept) (name string) {
	t.Helper()
	name = File(filepath.Join(t.TempDir(), "sonde.state"))
	if err := k.Write(name); err != nil {
		t.Fatal(err)
	}
	return name
}

func TestInputsAreReadAsTheyWere(t *testing.T) {
	file, missing := filepath.Join(t.TempDir(), "file"), filepath.Join(t.TempDir(), "missing")
	write := func(path, text string) {
		t.Helper()
		if err := os.WriteFile(path, []byte(text), 0o600); err != nil {
			t.Fatal(err)
		}
	}
	write(file, "before")
	t.Setenv("ACCEPTED_SET", "before")
	read := func(in *Inputs) (got []string) {
		text, err := in.ReadFile(file, 100)
		_, gone := in.ReadFile(missing, 100)
		value, ok := in.LookupEnv("ACCEPTED_SET")
		_, unset := in.LookupEnv("ACCEPTED_UNSET")
		if err != nil || !ok || unset {
			t.Errorf("%v, %v, %v", err, ok, unset)
		}
		if !os.IsNotExist(gone) || !in.IsFile(file) || in.IsFile(missing) {
			t.Errorf("%v, %v, %v", gone, in.IsFile(file), in.IsFile(missing))
		}
		return append(got, string(text), value)
	}
	in := &Inputs{Sources: []config.Source{{Name: "a.hcl", Bytes: []byte("a")}}}
	if got := read(in); !reflect.DeepEqual(got, []string{"before", "before"}) {
		t.Fatal(got)
	}
	name := keep(t, Kept{MaxAge: time.Hour, Inputs: in})
	write(missing, "")
	write(file, "after")
	t.Setenv("ACCEPTED_SET", "after")
	t.Setenv("ACCEPTED_UNSET", "")
	kept, err := Read(name)
	if err != nil || kept == nil {
		t.Fatal(kept, err)
	}
	if got := read(kept.Inputs); !reflect.DeepEqual(got, []string{"before", "before"}) || kept.MaxAge != time.Hour || string(kept.Inputs.Sources[0].Bytes) != "a" {
		t.Errorf("%v of %+v", got, kept)
	}
	if !kept.Inputs.Equal(in) || kept.Inputs.Equal(&Inputs{}) {
		t.Error("the inputs are not recognized")
	}
}

// Commands in the file run with the rights of the engine.
func TestOnlyAFileOfThisUserIsTrusted(t *testing.T) {
	for want, change := range map[string]func(name string) error{
		"its mode 644 gives other users access": func(name string) error { return os.Chmod(name, 0o644) },
		"is writable by all users":              func(name string) error { return os.Chmod(filepath.Dir(name), 0o777) },
		"is not a regular file":                 func(name string) error { return errors.Join(os.Remove(name), os.Mkdir(name, 0o700)) },
		"unexpected end of JSON":                func(name string) error { return os.Truncate(name, 0) },
		"unexpected end of JSON (partial)":      func(name string) error { return os.Truncate(name, 50) },
	} {
		name := keep(t, Kept{Inputs: &Inputs{Sources: []config.Source{{Name: "a.hcl"}}}})
		if err := change(name); err != nil {
			t.Fatal(err)
		}
		want, _, _ = strings.Cut(want, " (")
		if kept, err := Read(name); kept != nil || err == nil || !strings.Contains(err.Error(), want) || !strings.Contains(err.Error(), name) {
			t.Errorf("read %+v, %v, want %q", kept, err, want)
		}
	}
	if kept, err := Read(filepath.Join(t.TempDir(), "missing")); kept != nil || err != nil {
		t.Errorf("without a file: %+v, %v", kept, err)
	}
}

// A revision of the maximum size is kept together with the files of the engine.
func TestTheLargestRevisionIsKept(t *testing.T) {
	b := &revision.Bundle{Sources: []string{"a.hcl"}, Files: map[string][]byte{"a.hcl": nil, "plugin": make([]byte, revision.MaxContent)}}
	in := OfRevision(revision.Ref{}, b)
	in.Sources = append(in.Sources, config.Source{Name: "config.hcl", Bytes: []byte("cluster {}")})
	if err := in.checkSize(); err != nil {
		t.Error(err)
	}
}

// A start must not use an earlier configuration than the last accepted one.
func TestAConfigurationThatIsNotKeptLeavesNoEarlierOne(t *testing.T) {
	large := Kept{Inputs: &Inputs{Sources: []config.Source{{Name: "a.hcl", Bytes: make([]byte, maxSize+1)}}}}
	name := keep(t, Kept{Inputs: &Inputs{}})
	link := filepath.Join(t.TempDir(), "link")
	if err := os.Symlink(name, link); err != nil {
		t.Fatal(err)
	}
	if err := large.Write(link); err == nil || !strings.Contains(err.Error(), "at most 134217728 can be kept") {
		t.Errorf("got %v", err)
	}
	if kept, err := Read(name); kept != nil || err != nil {
		t.Errorf("a start has %+v, %v", kept, err)
	}
	if _, err := os.Lstat(link); err != nil {
		t.Error(err)
	}
	if err := large.Write(name); err == nil || strings.Contains(err.Error(), "remove") {
		t.Errorf("without an earlier one: %v", err)
	}
}

// Write never leaves a partial file, so a partial file is damaged, even if it is empty.
func TestAConfigurationThatIsKeptInPartIsDamaged(t *testing.T) {
	name := keep(t, Kept{Inputs: &Inputs{}})
	for _, size := range []int64{40, 1, 0} {
		if err := os.Truncate(name, size); err != nil {
			t.Fatal(err)
		}
		if kept, err := Read(name); kept != nil || err == nil || !strings.Contains(err.Error(), name+" is damaged: ") {
			t.Errorf("cut to %d bytes: got %+v, %v", size, kept, err)
		}
	}
}

// Users link the file to a memory file system to keep secrets off the disk.
func TestALinkThatNobodyElseCanMakeIsFollowed(t *testing.T) {
	name, dir := keep(t, Kept{Inputs: &Inputs{}}), t.TempDir()
	link := filepath.Join(dir, "link")
	if err := os.Symlink(name, link); err != nil {
		t.Fatal(err)
	}
	if err := (Kept{MaxAge: time.Hour, Inputs: &Inputs{}}).Write(link); err != nil {
		t.Fatal(err)
	}
	if kept, err := Read(link); err != nil || kept == nil || kept.MaxAge != time.Hour {
		t.Errorf("read %+v, %v", kept, err)
	}
	if err := os.Chmod(dir, 0o777|os.ModeSticky); err != nil {
		t.Fatal(err)
	}
	if kept, err := Read(link); kept != nil || err == nil || !strings.Contains(err.Error(), "is writable by all users") {
		t.Errorf("through a link of anybody: %+v, %v", kept, err)
	}
}

func TestACloneIsUsedBesideTheInputs(t *testing.T) {
	in := &Inputs{Sources: []config.Source{{Name: "a.hcl"}}, Files: map[string][]byte{"one": []byte("1")}}
	c := in.Clone()
	c.LookupEnv("ACCEPTED_UNSET")
	c.IsFile("other")
	if _, err := c.ReadFile("missing", 1); err == nil {
		t.Error("there is a file")
	}
	if len(in.Env) > 0 || len(in.Regular) > 0 || len(in.Files) != 1 || len(c.Files) != 2 {
		t.Errorf("the inputs are %+v", in)
	}
}
