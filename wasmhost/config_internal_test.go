package wasmhost

import (
	"fmt"
	"reflect"
	"strings"
	"testing"
	"time"

	"github.com/sonde-probe/sonde/internal/bytesize"
)

func TestTheDefaultsOfLimitsAreThoseOfTheirTags(t *testing.T) {
	var l Limits
	if err := l.complete(); err != nil {
		t.Fatal(err)
	}
	v := reflect.ValueOf(l)
	for i := range v.NumField() {
		tag, got := v.Type().Field(i).Tag, v.Field(i).Interface()
		if strings.HasSuffix(tag.Get("hcl"), ",bytes") {
			got = bytesize.Size(v.Field(i).Int())
		}
		want := tag.Get("default")
		if d, ok := got.(time.Duration); ok {
			if shown, err := time.ParseDuration(want); err != nil || shown != d {
				t.Errorf("%s: the default is %v, shown is %s", tag, d, want)
			}
		} else if fmt.Sprint(got) != want {
			t.Errorf("%s: the default is %v, shown is %s", tag, got, want)
		}
	}
}
