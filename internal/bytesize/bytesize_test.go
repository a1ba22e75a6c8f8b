package bytesize

import "testing"

func TestSizesAreParsedAndFormatted(t *testing.T) {
	for text, want := range map[string]Size{"0B": 0, "512B": 512, "64KiB": 64 << 10, "32MiB": 32 << 20, "4GiB": 4 << 30, "1025KiB": 1025 << 10} {
		if got, ok := Parse(text); !ok || got != want || got.String() != text {
			t.Errorf("%q is parsed as %d, %v and formatted as %q", text, got, ok, got)
		}
	}
	for _, text := range []string{"", "1", "B", "-1B", "+1B", "1.5MiB", "1 M", "9223372036854775807GiB", "8589934592GiB", "99999999999999999999B"} {
		if got, ok := Parse(text); ok {
			t.Errorf("%q is parsed as %d", text, got)
		}
	}
}

func TestRoundedSizesHaveOneDecimal(t *testing.T) {
	for size, want := range map[Size]string{0: "0 B", 1023: "1023 B", 1536: "1.5 KiB", 32 << 20: "32.0 MiB", 5 << 30: "5.0 GiB"} {
		if got := size.Rounded(); got != want {
			t.Errorf("%d is %q, not %q", size, got, want)
		}
	}
}

func TestOtherUnitsAreRecognized(t *testing.T) {
	for text, want := range map[string]string{"32M": "32MiB", "32mb": "32MiB", "32 MB": "32MiB", "5k": "5KiB", "7b": "7B", "lots": "", "M": "", "1.5M": ""} {
		if got := Meant(text); got != want {
			t.Errorf("Meant(%q) is %q, not %q", text, got, want)
		}
	}
}
