package probe_test

import (
	"testing"

	"github.com/sonde-probe/sonde/probe"
)

func TestOutcomesAreReadAsTheyAreWritten(t *testing.T) {
	for text, want := range map[string]string{
		"": "", "SSFF": "S2 F2", "S1440 F2 S10": "S1440 F2 S10", "S3SS": "S5", " W U # F\nU2": "W1 U3", "#": "", "S F S": "S1 F1 S1",
		"S2147483647 S": "S2147483647",
	} {
		runs, err := probe.ParseOutcomes(text)
		if got := probe.FormatOutcomes(runs); err != nil || got != want {
			t.Errorf("%q: got %q, %v, want %q", text, got, err, want)
		}
	}
	for _, text := range []string{"X", "s", "3", "S0", "F2147483648", "S-1", "S1.5", "é"} {
		if runs, err := probe.ParseOutcomes(text); err == nil {
			t.Errorf("%q: got %v, want an error", text, runs)
		}
	}
}

func TestAnOutcomeThatDoesNotExistIsWrittenAsUnknown(t *testing.T) {
	runs := []probe.OutcomeRun{{Outcome: probe.Failure + 1, Attempts: 2}, {Outcome: 255, Attempts: 1}}
	if got := probe.FormatOutcomes(runs); got != "U2 U1" {
		t.Errorf("got %q", got)
	}
}

func FuzzParseOutcomes(f *testing.F) {
	f.Add("S3 F # x\nU2")
	f.Fuzz(func(t *testing.T, text string) {
		runs, err := probe.ParseOutcomes(text)
		if err != nil {
			return
		}
		again, err := probe.ParseOutcomes(probe.FormatOutcomes(runs))
		if err != nil || probe.FormatOutcomes(again) != probe.FormatOutcomes(runs) {
			t.Errorf("%q: %v becomes %v, %v", text, runs, again, err)
		}
	})
}
