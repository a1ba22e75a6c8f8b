package oracle

import (
	"regexp"
	"strings"
	"testing"
)

const someSeeds = 300

func TestScriptTextRoundTrips(t *testing.T) {
	for seed := range uint64(someSeeds) {
		s := Generate(seed)
		back, err := Parse(s.Name, s.String())
		if err != nil || back.String() != s.String() {
			t.Fatalf("seed %d: %v\n%v\nwas read as\n%v", seed, err, s, back)
		}
	}
}

func TestSeedDeterminesTheScript(t *testing.T) {
	if a, b := Generate(7), Generate(7); a.String() != b.String() {
		t.Errorf("one seed gives\n%v\nand\n%v", a, b)
	}
	if a, b := Generate(7), Generate(8); a.String() == b.String() {
		t.Errorf("two seeds give\n%v", a)
	}
}

func TestInvalidScriptsAreRejected(t *testing.T) {
	for _, text := range []string{
		"dance", "container", "start web", "liveness exec", "pod Always\ncontainer web\n  liveness",
		"container web\n  liveness exec period=x", "container web\n  liveness exec pace=1", "container web\nexit web",
		"container web\nanswer web/liveness=S", "container web\nanswer web/health=S",
	} {
		if s, err := Parse("wrong", text); err == nil || !strings.HasPrefix(err.Error(), "wrong:") {
			t.Errorf("%q was read as\n%v, %v", text, s, err)
		}
	}
}

func TestReducedScriptsAreSmaller(t *testing.T) {
	for seed := range uint64(20) {
		s := Generate(seed)
		before := s.String()
		all := smaller(s)
		if len(all) == 0 {
			t.Errorf("nothing is smaller than\n%v", s)
		}
		for _, c := range all {
			if len(c.String()) >= len(before) {
				t.Errorf("not smaller:\n%v", c)
			}
			if _, err := Parse(c.Name, c.String()); err != nil {
				t.Errorf("cannot be played: %v\n%v", err, c)
			}
		}
		if s.String() != before {
			t.Fatalf("making smaller changed the script to\n%v", s)
		}
	}
}

// A row without an effect could hide a later difference.
func TestEachAccidentMakesADifference(t *testing.T) {
	for _, row := range Mended() {
		without, n := kubeletsAccidents, 0
		row.mend(&without)
		for seed := range uint64(someSeeds) {
			s := Generate(seed)
			if len(compare(foretell(s, kubeletsAccidents), foretell(s, without))) > 0 {
				n++
			}
		}
		if n < 5 {
			t.Errorf("%s makes a difference in %d scripts of %d only", row.K, n, someSeeds)
		}
	}
}

func TestEachIntendedDifferenceOccurs(t *testing.T) {
	covers := map[string]int{}
	for seed := range uint64(someSeeds) {
		s := Generate(seed)
		for n := range s.Steps {
			for _, p := range observationsOf(s, n) {
				for _, row := range Wanted() {
					if row.covers(p) {
						covers[row.K]++
					}
				}
			}
		}
	}
	for _, row := range Wanted() {
		if covers[row.K] == 0 {
			t.Errorf("%s covers nothing: %s", row.K, row.Why)
		}
	}
}

func observationsOf(s *Script, step int) (all []observation) {
	for i := range s.Containers {
		c := &s.Containers[i]
		all = append(all, observation{s, c, 0, step, ""})
		for _, k := range c.Checks {
			for _, what := range []string{"publish", "counted", "answer"} {
				all = append(all, observation{s, c, k.Kind, step, what})
			}
		}
	}
	return all
}

// Only generated behaviour is compared.
func TestGeneratorCoversEverything(t *testing.T) {
	var all strings.Builder
	for seed := range uint64(someSeeds) {
		all.WriteString(Generate(seed).String())
	}
	text := all.String()
	for _, verb := range []Verb{Add, Sync, Wait, Start, Stall, Resume, Exit, Lose, Answer, Terminate, Succeed, Remove, Cleanup} {
		if n := strings.Count(text, "\n"+string(verb)); n < 5 {
			t.Errorf("%s stands in %d scripts of %d only", verb, n, someSeeds)
		}
	}
	for _, word := range []string{"pod Always", "pod OnFailure", "pod Never", " deleting", " sidecar", " exec ", " http ", " tcp ", " delay=3 ", " failure=3", " success=3 "} {
		if n := strings.Count(text, word); n < 5 {
			t.Errorf("%q stands in %d scripts of %d only", word, n, someSeeds)
		}
	}
	for _, letter := range []byte{Success, Failure, Warning, Late, Broken, Stalled, Closed, Slow} {
		if n := len(regexp.MustCompile("=[A-Z]*"+string(letter)).FindAllString(text, -1)); n < 5 {
			t.Errorf("%c is given %d times in %d scripts only", letter, n, someSeeds)
		}
	}
}
