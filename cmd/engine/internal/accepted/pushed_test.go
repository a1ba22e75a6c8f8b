package accepted

import (
	"os"
	"path/filepath"
	"reflect"
	"testing"

	"github.com/sonde-probe/sonde/config"
	"github.com/sonde-probe/sonde/fleet/revision"
)

// pushedOf returns a revision with files, as an engine receives it.
func pushedOf(t *testing.T, number int64, files map[string][]byte) *Inputs {
	t.Helper()
	b := &revision.Bundle{Sources: []string{"a.hcl"}, Files: files}
	_, digest, err := b.Encode()
	if err != nil {
		t.Fatal(err)
	}
	return OfRevision(revision.Ref{Number: number, Digest: digest}, b)
}

var ours = Fleet{Endpoints: []string{"http://a:2379", "http://b:2379"}, Prefix: "/sonde/"}

func TestAFleetMayGetOtherEndpoints(t *testing.T) {
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
		if got := ours.Is(c.now); got != c.isSame {
			t.Errorf("%v: %v", c.now, got)
		}
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
	in := p.Clone()
	in.Sources = append([]config.Source{own}, in.Sources...)
	parse(t, in)
	watched := in.OfEngine()
	if got := watched.Paths(); len(got) != 1 || got[0] != filepath.Join(dir, "own.txt") {
		t.Errorf("it watches %q", got)
	}
	if !watched.Again([]config.Source{own}, nil).Equal(watched) {
		t.Error("it sees a change of what has not changed")
	}
	if err := os.WriteFile(filepath.Join(dir, "own.txt"), []byte("changed"), 0o600); err != nil {
		t.Fatal(err)
	}
	if watched.Again([]config.Source{own}, nil).Equal(watched) {
		t.Error("it does not see that a file of the engine has changed")
	}
}

func TestWhatWasKeptHasItsRevision(t *testing.T) {
	pushed := pushedOf(t, 7, map[string][]byte{"a.hcl": []byte("locals {}"), "empty": {}})
	in := pushed.Clone()
	in.Sources = append([]config.Source{{Name: "config.hcl"}}, in.Sources...)
	kept, err := Read(keep(t, Kept{Fleet: ours, Inputs: in}))
	if err != nil || kept == nil || !reflect.DeepEqual(kept.Pushed(), pushed) || !reflect.DeepEqual(kept.Fleet, ours) {
		t.Errorf("kept %+v, %v", kept, err)
	}
	own, err := Read(keep(t, Kept{Inputs: &Inputs{}}))
	if err != nil || own.Pushed() != nil || (*Kept)(nil).Pushed() != nil {
		t.Errorf("kept %+v, %v, with a revision", own, err)
	}
}
