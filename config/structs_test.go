package config

import "testing"

func TestFieldsOfAnEmbeddedStructAreThoseOfTheBlock(t *testing.T) {
	g := parseGood(t, "target \"web\" {}\ngroup \"g\" {\nmembers = [\"web\"]\nweight = 7\n}\n", Options{}).Groups["g"]
	if g.Weight != 7 || !g.Members.Matches("web", nil) {
		t.Errorf("got %+v", g)
	}
}
