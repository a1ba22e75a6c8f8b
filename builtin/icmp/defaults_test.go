package icmpprobe

import (
	"reflect"
	"strconv"
	"testing"
)

func TestTheDefaultPayloadIsThatOfTheDocuments(t *testing.T) {
	f, _ := reflect.TypeFor[Config]().FieldByName("PayloadSize")
	for name, want := range map[string]int{"default": defaultPayload, "min": MinPayload, "max": MaxPayload} {
		if got := f.Tag.Get(name); got != strconv.Itoa(want) {
			t.Errorf("%s: documented is %s, want %d", name, got, want)
		}
	}
}
