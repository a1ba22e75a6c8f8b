//go:build !wasip1

package guest

import (
	"encoding/json"
	"errors"
	"reflect"
	"strings"
	"testing"
)

// Strings are decoded in the same way as by package encoding/json.
func TestStringsOfSettingsAreRead(t *testing.T) {
	for _, text := range []string{
		``, `plain`, `☃`, `\\`, `\"`, `\"\"`, `a\"b`, `\\\"`, `a\\`, `\n\t\r\b\f\/`, `\u0041`, `\u00e9x`, `\ud83d\ude00`, `\ud83d`, `\ud83dx`,
		`say \"hello\", \\ and\nend`, strings.Repeat(`\n`, 100), strings.Repeat(`x\"`, 100),
	} {
		var got, want struct {
			Text string `sonde:"Text"`
			Next string `sonde:"Next"`
		}
		in := `{"Text":"` + text + `","Next":"after"}`
		if err := json.Unmarshal([]byte(in), &want); err != nil {
			t.Fatal(err)
		}
		if err := decode(in, &got); err != nil || !reflect.DeepEqual(got, want) {
			t.Errorf("%s: got %q, %v, want %q", in, got, err, want)
		}
	}
}

func TestWrongSettingsAreNamed(t *testing.T) {
	type settings struct {
		Number int `sonde:"number"`
		Block  *struct {
			Text string `sonde:"text"`
		} `sonde:"block"`
	}
	for in, want := range map[string]string{
		`{"number":"1"}`:        "number",
		`{"block":{"text":1}}`:  "block.text",
		`{"block":{"text":"`:    "block.text",
		`{"block":{"text":"\`:   "block.text",
		`{"block":{"text":"\u1`: "block.text",
		`{"number":1} x`:        "settings",
	} {
		var wrong *FieldError
		if err := decode(in, new(settings)); !errors.As(err, &wrong) || wrong.Field != want {
			t.Errorf("%s: got %v, want one of %s", in, err, want)
		}
	}
}
