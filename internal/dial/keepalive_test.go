package dial

import (
	"reflect"
	"strconv"
	"testing"
	"time"
)

func TestTheDefaultsAreThoseOfTheDocuments(t *testing.T) {
	documented := func(field string) string {
		f, _ := reflect.TypeFor[KeepAlive]().FieldByName(field)
		return f.Tag.Get("default")
	}
	for field, want := range map[string]time.Duration{"Idle": defaultIdle, "Interval": defaultInterval} {
		if d, err := time.ParseDuration(documented(field)); err != nil || d != want {
			t.Errorf("%s: documented is %v %v, want %v", field, d, err, want)
		}
	}
	if got := documented("Count"); got != strconv.Itoa(defaultCount) {
		t.Errorf("documented are %s packets, want %d", got, defaultCount)
	}
}
