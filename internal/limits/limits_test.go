package limits

import (
	"testing"
	"time"
)

func TestLimitsOfFieldsAreChecked(t *testing.T) {
	type inside struct {
		Weight int `hcl:"weight,optional" min:"1" max:"256"`
	}
	type block struct {
		inside
		Every time.Duration `hcl:"every" min:"1s"`
		Size  int64         `hcl:"size,optional,bytes" max:"1KiB"`
		Mode  string        `hcl:"mode,optional" oneof:"a b c"`
		Nice  *int          `hcl:"nice,optional" min:"1"`
		Inner *inside       `hcl:"inner,block"`
		Made  int           `hcl:"-" min:"5"`
	}
	zero := 0
	for want, b := range map[string]block{
		"":                                                 {Every: time.Second, Size: 1024, Mode: "b", inside: inside{256}, Inner: &inside{1}},
		"weight is -1; it must be from 1 to 256":           {Every: time.Second, inside: inside{-1}},
		"every is 0s; it must be at least 1s":              {},
		"size is 2KiB; it must be at most 1KiB":            {Every: time.Second, Size: 2048},
		`mode is "d"; it must be a, b or c`:                {Every: time.Second, Mode: "d"},
		"nice is 0; it must be at least 1":                 {Every: time.Second, Nice: &zero},
		"in.inner.weight is 257; it must be from 1 to 256": {Every: time.Second, Inner: &inside{257}},
	} {
		path := ""
		if b.Inner != nil {
			path = "in."
		}
		if err := Check(b, path).Err(); err == nil && want != "" || err != nil && err.Error() != want {
			t.Errorf("%+v: got %v, want %s", b, err, want)
		}
	}
}
