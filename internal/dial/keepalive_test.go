package dial

import (
	"fmt"
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

func TestWhatTheSystemCannotHaveIsAnError(t *testing.T) {
	for want, k := range map[string]*KeepAlive{
		"<nil>": {Idle: time.Second, Interval: 32767 * time.Second, Count: 127},
		"keepalive.idle is 1.5s; it must be whole seconds":                                                         {Idle: 1500 * time.Millisecond},
		"keepalive.count is 128; it must be from 1 to 127":                                                         {Count: 128},
		"keepalive.idle is 9h6m8s; it must be from 1s to 9h6m7s":                                                   {Idle: 32768 * time.Second},
		"keepalive.interval is -1s; it must be from 1s to 9h6m7s; keepalive.count is -1; it must be from 1 to 127": {Interval: -time.Second, Count: -1},
	} {
		_, err := New(Config{Host: "127.0.0.1", Port: "80", KeepAlive: k})
		if got := fmt.Sprint(err); got != want {
			t.Errorf("%+v: got %q, want %q", k, got, want)
		}
	}
}
