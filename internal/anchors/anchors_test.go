package anchors_test

import (
	"strings"
	"testing"

	"github.com/sonde-probe/sonde/internal/anchors"
)

func TestTextsThatAliasesMultiplyAreRefused(t *testing.T) {
	long := strings.Repeat("x", 100<<10)
	for name, text := range map[string]string{
		"values": "a: &t " + long + "\nb: [" + strings.Repeat("*t, ", 1000) + "]\n",
		"names":  "a: &t {" + long[:1000] + ": 1}\nb: [" + strings.Repeat("*t, ", 20_000) + "]\n",
	} {
		if err := anchors.Check([]byte(text)); err == nil || !strings.Contains(err.Error(), "to more than 16777216 bytes") {
			t.Errorf("%s: %v", name, err)
		}
	}
	for name, text := range map[string]string{
		"none":         "a: b",
		"some":         "a: &t {b: " + long + "}\nc: *t\nd: {<<: *t, e: [1, true, null, 2.5]}\n",
		"no YAML":      "a: [&",
		"a large text": "a: &t " + strings.Repeat("x", 20<<20) + "\n",
	} {
		if err := anchors.Check([]byte(text)); err != nil {
			t.Errorf("%s: %v", name, err)
		}
	}
}
