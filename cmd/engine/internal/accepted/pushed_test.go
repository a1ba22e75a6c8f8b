package accepted

import (
	"errors"
	"os"
	"path/filepath"
	"reflect"
	"strings"
	"testing"

	"github.com/sonde-probe/sonde/config"
	"github.com/sonde-probe/sonde/fleet/revision"
)

// pushedOf returns a revision with files, as an engine gets it.
func pushedOf(t *testing.T, number int64, files map[string][]byte) *Pushed {
	t.Helper()
	b := &revision.Bundle{Sources: []string{"a.hcl"}, Files: files}
	_, digest, err := b.Encode()
	if err != nil {
		t.Fatal(err)
	}
	return &Pushed{revision.Ref{Number: number, Digest: digest}, b}
}

var ours = Fleet{Endpoints: []string{"http://a:2379", "http://b:2379"}, Prefix: "/sonde/"}

func TestARevisionOfAnotherFleetIsNotUsed(t *testing.T) {
	name := filepath.Join(t.TempDir(), "sonde.state.revision")
	if err := WritePushed(name, ours, pushedOf(t, 1, map[string][]byte{"a.hcl": []byte("locals {}")})); err != nil {
		t.Fatal(err)
	}
	for _, c := range []struct {
		now    Fleet
		isSame bool
	}{
		{ours, true},
		{Fleet{[]string{"http://c:2379", "http://b:2379"}, "/sonde/"}, true}, // a member was replaced
		{Fleet{[]string{"http://c:2379", "http://d:2379"}, "/sonde/"}, false},
		{Fleet{ours.Endpoints, "/other/"}, false},
		{Fleet{}, false},
	} {
		p, err := ReadPushed(name, c.now)
		if c.isSame && (err != nil || p.Number() != 1) || !c.isSame && (p != nil || err == nil || !strings.Contains(err.Error(), name+": it is of another cluster")) {
			t.Errorf("with %v: revision %d, %v", c.now, p.Number(), err)
		}
	}
}

func TestARevisionThatIsNoLongerUsedIsRemoved(t *testing.T) {
	name := filepath.Join(t.TempDir(), "sonde.state.revision")
	if err := WritePushed(name, ours, pushedOf(t, 1, map[string][]byte{"a.hcl": []byte("locals {}")})); err != nil {
		t.Fatal(err)
	}
	for range 2 { // no file is no error
		if err := WritePushed(name, ours, nil); err != nil {
			t.Error(err)
		}
	}
	if p, err := ReadPushed(name, ours); p != nil || err != nil {
		t.Errorf("there is revision %d, %v", p.Number(), err)
	}
}

func TestARevisionOutlastsTheEngine(t *testing.T) {
	name := PushedFile(filepath.Join(t.TempDir(), "sonde.state"))
	if p, err := ReadPushed(name, ours); p != nil || err != nil || p.Number() != 0 {
		t.Errorf("before the first: %v, %v", p, err)
	}
	for number := range int64(2) {
		want := pushedOf(t, number+1, map[string][]byte{"a.hcl": []byte("locals {}"), "empty": {}})
		if err := WritePushed(name, ours, want); err != nil {
			t.Fatal(err)
		}
		if got, err := ReadPushed(name, ours); err != nil || !reflect.DeepEqual(got, want) {
			t.Errorf("got %+v, %v", got, err)
		}
	}
	if info, err := os.Stat(name); err != nil || info.Mode().Perm() != 0o600 {
		t.Errorf("%v, %v", info, err)
	}
	other := pushedOf(t, 3, map[string][]byte{"a.hcl": nil})
	other.Ref.Digest = "0"
	if err := WritePushed(name, ours, other); err == nil || !strings.Contains(err.Error(), "revision 3 has other files than were pushed") {
		t.Errorf("files of another revision: %v", err)
	}
}

func TestADamagedRevisionIsNotUsed(t *testing.T) {
	name := filepath.Join(t.TempDir(), "sonde.state.revision")
	p := pushedOf(t, 1, map[string][]byte{"a.hcl": []byte("locals {}")})
	for what, damage := range map[string]func([]byte) []byte{
		"cut off":           func(text []byte) []byte { return text[:len(text)-9] },
		"empty":             func([]byte) []byte { return nil },
		"without its files": func(text []byte) []byte { return text[:strings.IndexByte(string(text), '\n')] },
		"with another digest": func(text []byte) []byte {
			return []byte(strings.Replace(string(text), p.Ref.Digest[:8], "00000000", 1))
		},
	} {
		if err := WritePushed(name, ours, p); err != nil {
			t.Fatal(err)
		}
		text, err := os.ReadFile(name)
		if err != nil {
			t.Fatal(err)
		}
		if err := os.WriteFile(name, damage(text), 0o600); err != nil {
			t.Fatal(err)
		}
		if got, err := ReadPushed(name, ours); got != nil || err == nil || !strings.Contains(err.Error(), name) {
			t.Errorf("%s: got %+v, %v", what, got, err)
		}
	}
}

// Its commands are run with the rights of the engine.
func TestARevisionThatOtherUsersCanChangeIsNotUsed(t *testing.T) {
	dir := t.TempDir()
	name := filepath.Join(dir, "sonde.state.revision")
	if err := WritePushed(name, ours, pushedOf(t, 1, map[string][]byte{"a.hcl": []byte("locals {}")})); err != nil {
		t.Fatal(err)
	}
	for want, modes := range map[string][2]os.FileMode{
		"it has mode 620 and other users must have no access": {0o620, 0o755},
		"is writable for all users":                           {0o600, 0o777},
		"":                                                    {0o600, 0o755},
	} {
		if err := errors.Join(os.Chmod(name, modes[0]), os.Chmod(dir, modes[1])); err != nil {
			t.Fatal(err)
		}
		_, err := ReadPushed(name, ours)
		if want == "" && err != nil || want != "" && (err == nil || !strings.Contains(err.Error(), want) || !strings.Contains(err.Error(), name)) {
			t.Errorf("got %v, want %q", err, want)
		}
	}
	if err := os.Remove(name); err != nil {
		t.Fatal(err)
	}
	if err := os.Mkdir(name, 0o700); err != nil {
		t.Fatal(err)
	}
	if _, err := ReadPushed(name, ours); err == nil || !strings.Contains(err.Error(), "it is not a regular file") {
		t.Errorf("a directory: %v", err)
	}
}

func TestAWatchSeesTheFilesOfTheEngineOnly(t *testing.T) {
	dir := folder(t, map[string]string{"own.txt": "own"})
	own := config.Source{Name: filepath.Join(dir, "config.hcl"), Bytes: []byte(`locals { own = file("own.txt") }`)}
	p := pushedOf(t, 1, map[string][]byte{
		"a.hcl": []byte(`locals {
			pushed = file("pushed.txt")
			absent = fileexists("absent.txt")
		}`), "pushed.txt": []byte("pushed"),
	})
	in := p.Inputs()
	in.Sources = p.Sources([]config.Source{own})
	parse(t, in)
	watched := in.OfEngine()
	if got := watched.Paths(); len(got) != 1 || got[0] != filepath.Join(dir, "own.txt") {
		t.Errorf("it watches %q", got)
	}
	names, sum := watched.WithoutContent(), watched.Checksum()
	if names.Again([]config.Source{own}, nil).Checksum() != sum {
		t.Error("it sees a change of what has not changed")
	}
	if err := os.WriteFile(filepath.Join(dir, "own.txt"), []byte("changed"), 0o600); err != nil {
		t.Fatal(err)
	}
	if names.Again([]config.Source{own}, nil).Checksum() == sum {
		t.Error("it does not see that a file of the engine has changed")
	}
}

func TestWhatWasKeptHasItsRevision(t *testing.T) {
	p := place(t)
	pushed := pushedOf(t, 7, map[string][]byte{"a.hcl": []byte("locals {}")})
	in := pushed.Inputs()
	in.Sources = pushed.Sources([]config.Source{{Name: "config.hcl"}})
	if err := p.Keep(Header{Revision: pushed.Ref}, in); err != nil {
		t.Fatal(err)
	}
	p.Close()
	kept, err := p.Find(always)
	if err != nil || kept == nil || !reflect.DeepEqual(kept.Pushed(), pushed) {
		t.Errorf("kept %+v, %v", kept, err)
	}
}
