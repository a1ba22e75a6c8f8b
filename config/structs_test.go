package config

import (
	"reflect"
	"testing"
	"time"

	"github.com/sonde-probe/sonde/probe"
)

func TestLimitsOfFieldsAreChecked(t *testing.T) {
	type inside struct {
		Weight int `hcl:"weight,optional" min:"1" max:"256"`
	}
	type block struct {
		inside
		Wait  time.Duration `hcl:"wait,optional" min:"1s"`
		Size  int64         `hcl:"size,optional,bytes" max:"1KiB"`
		Inner inside        `hcl:"inner,block"`
	}
	for _, c := range []struct {
		values Values
		want   string
	}{
		{Values{}, ""},
		{Values{"weight": int64(1), "wait": time.Second, "size": int64(1024), "inner": Values{"weight": int64(256)}}, ""},
		{Values{"weight": int64(0)}, "weight is 0; it must be from 1 to 256"},
		{Values{"wait": time.Millisecond}, "wait is 1ms; it must be at least 1s"},
		{Values{"size": int64(2048)}, "size is 2KiB; it must be at most 1KiB"},
		{Values{"inner": Values{"weight": int64(257)}}, "inner.weight is 257; it must be from 1 to 256"},
	} {
		var wrong probe.FieldErrors
		checkLimits(reflect.TypeFor[block](), c.values, "", &wrong)
		if err := wrong.Err(); err == nil && c.want != "" || err != nil && err.Error() != c.want {
			t.Errorf("%v: got %v, want %s", c.values, err, c.want)
		}
	}
}

func TestFieldsOfAnEmbeddedStructAreThoseOfTheBlock(t *testing.T) {
	g := parseGood(t, "target \"web\" {}\ngroup \"g\" {\nmembers = [\"web\"]\nweight = 7\n}\n", Options{}).Groups["g"]
	if g.Weight != 7 || !g.Members.Matches("web", nil) {
		t.Errorf("got %+v", g)
	}
}
