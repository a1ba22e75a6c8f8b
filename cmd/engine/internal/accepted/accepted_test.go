package accepted

import (
	"bytes"
	"os"
	"path/filepath"
	"reflect"
	"strings"
	"testing"

	"github.com/sonde-probe/sonde/config"
	"github.com/sonde-probe/sonde/fleet/revision"
	"github.com/sonde-probe/sonde/tests/tier"
)

// place returns a place in a directory of the test's own.
func place(t *testing.T) *Place {
	t.Helper()
	return &Place{path: filepath.Join(t.TempDir(), prefix+"0123")}
}

func always(Header) bool { return true }
func none(Header) bool   { return false }

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
	p := place(t)
	if err := p.Keep(Header{State: "s"}, in); err != nil {
		t.Fatal(err)
	}
	p.Close()
	write(missing, "")
	write(file, "after")
	t.Setenv("ACCEPTED_SET", "after")
	t.Setenv("ACCEPTED_UNSET", "")
	kept, err := p.Find(always)
	if err != nil || kept == nil {
		t.Fatal(kept, err)
	}
	if got := read(kept.Inputs); !reflect.DeepEqual(got, []string{"before", "before"}) || kept.State != "s" || string(kept.Inputs.Sources[0].Bytes) != "a" {
		t.Errorf("%v of %+v", got, kept)
	}
	if !kept.Has(in) || kept.Has(&Inputs{}) {
		t.Error("the inputs are not recognized")
	}
}

func TestOnlyAFileOfThisUserIsTrusted(t *testing.T) {
	for name, change := range map[string]func(p *Place) error{
		"readable for others": func(p *Place) error { return os.Chmod(p.path, 0o644) },
		"a link": func(p *Place) error {
			if err := os.Rename(p.path, p.path+".file"); err != nil {
				return err
			}
			return os.Symlink(p.path+".file", p.path)
		},
		"cut off": func(p *Place) error { return os.Truncate(p.path, 120) },
		"changed": func(p *Place) error {
			text, err := os.ReadFile(p.path)
			if err != nil {
				return err
			}
			return os.WriteFile(p.path, bytes.Replace(text, []byte("a.hcl"), []byte("b.hcl"), 1), 0o600)
		},
		"empty": func(p *Place) error { return os.Truncate(p.path, 0) },
	} {
		p := place(t)
		if err := p.Keep(Header{}, &Inputs{Sources: []config.Source{{Name: "a.hcl"}}}); err != nil {
			t.Fatal(err)
		}
		p.Close()
		if info, err := os.Stat(p.path); err != nil || info.Mode().Perm() != 0o600 {
			t.Fatal(info, err)
		}
		if err := change(p); err != nil {
			t.Fatal(err)
		}
		if kept, err := p.Find(always); kept != nil || err == nil {
			t.Errorf("%s: found %+v, %v", name, kept, err)
		}
	}
}

func TestWhatAnEngineKeepsIsItsOwnWhileItRuns(t *testing.T) {
	tier.Slow(t)
	p := place(t)
	if err := p.Keep(Header{State: "first"}, &Inputs{}); err != nil {
		t.Fatal(err)
	}
	other := &Place{path: p.path}
	if kept, err := other.Find(always); kept != nil || err != nil {
		t.Errorf("found %+v, %v", kept, err)
	}
	if err := other.Keep(Header{State: "second"}, &Inputs{}); err != nil {
		t.Fatal(err)
	}
	other.Remove()
	third := &Place{path: p.path + "4"}
	third.RemoveOthers(none)
	p.Close()
	if kept, err := other.Find(always); err != nil || kept == nil || kept.State != "first" {
		t.Errorf("found %+v, %v", kept, err)
	}
	if kept, err := other.Find(none); kept != nil || err != nil {
		t.Errorf("found %+v, %v", kept, err)
	}
	third.RemoveOthers(always)
	if _, err := os.Stat(p.path); err != nil {
		t.Error(err)
	}
	third.RemoveOthers(none)
	if kept, err := other.Find(always); kept != nil || err != nil {
		t.Errorf("found %+v, %v", kept, err)
	}
}

// A revision of any size that can be pushed is kept, together with the files of the engine.
func TestTheLargestRevisionIsKept(t *testing.T) {
	b := &revision.Bundle{Sources: []string{"a.hcl"}, Files: map[string][]byte{"a.hcl": nil, "plugin": make([]byte, revision.MaxContent)}}
	in := OfBundle(b)
	in.Sources = append(in.Sources, config.Source{Name: "config.hcl", Bytes: []byte("cluster {}")})
	if err := in.checkSize(); err != nil {
		t.Error(err)
	}
}

func TestInputsThatAreTooLargeAreNotKept(t *testing.T) {
	p := place(t)
	if err := p.Keep(Header{}, &Inputs{}); err != nil {
		t.Fatal(err)
	}
	large := &Inputs{Sources: []config.Source{{Name: "a.hcl", Bytes: make([]byte, MaxSize+1)}}}
	if err := p.Keep(Header{}, large); err == nil || !strings.Contains(err.Error(), "at most 134217728 are kept") {
		t.Errorf("got %v", err)
	}
	if kept, err := p.Find(always); kept != nil || err != nil {
		t.Errorf("found %+v, %v, which was accepted before", kept, err)
	}
}
