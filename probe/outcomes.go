package probe

import (
	"fmt"
	"math"
	"strconv"
	"strings"
)

// OutcomeRun is a run of consecutive attempts with the same outcome.
type OutcomeRun struct {
	Outcome  Outcome
	Attempts uint64 // from 1 to math.MaxInt32
}

// outcomeLetters has the letter of each outcome, indexed by outcome.
const outcomeLetters = "USWF"

// FormatOutcomes formats runs in the form that ParseOutcomes reads: "S1440 F2 S10". An invalid outcome is written as unknown.
func FormatOutcomes(runs []OutcomeRun) string {
	var b []byte
	for i, run := range runs {
		if i > 0 {
			b = append(b, ' ')
		}
		if run.Outcome >= Outcome(len(outcomeLetters)) {
			run.Outcome = Unknown
		}
		b = strconv.AppendUint(append(b, outcomeLetters[run.Outcome]), run.Attempts, 10)
	}
	return string(b)
}

// ParseOutcomes parses outcomes, each written as a letter: S for success, W warning, F failure, U unknown. A number after a
// letter is a repeat count: S3 is SSS. White space is ignored, and # starts a comment that extends to the end of the line.
// Adjacent runs in the result have different outcomes.
func ParseOutcomes(text string) (runs []OutcomeRun, err error) {
	for text != "" {
		letter := text[0]
		text = text[1:]
		switch {
		case letter == '#':
			_, text, _ = strings.Cut(text, "\n")
		case strings.IndexByte(" \t\r\n", letter) >= 0:
		case strings.IndexByte(outcomeLetters, letter) >= 0:
			digits := len(text) - len(strings.TrimLeft(text, "0123456789"))
			times := uint64(1)
			if digits > 0 {
				if times, err = strconv.ParseUint(text[:digits], 10, 31); err != nil || times == 0 {
					return nil, fmt.Errorf("%c%.20s has an invalid number of attempts: write a number from 1 to %d after a letter", letter, text[:digits], math.MaxInt32)
				}
			}
			text = text[digits:]
			runs = AppendOutcomes(runs, OutcomeRun{Outcome(strings.IndexByte(outcomeLetters, letter)), times})
		default:
			return nil, fmt.Errorf("unknown outcome %q: write S for success, W for warning, F for failure, U for unknown", letter)
		}
	}
	return runs, nil
}

// AppendOutcomes appends run to runs, or extends the last run if it has the same outcome.
func AppendOutcomes(runs []OutcomeRun, run OutcomeRun) []OutcomeRun {
	switch n := len(runs); {
	case run.Attempts == 0:
		return runs
	case n > 0 && runs[n-1].Outcome == run.Outcome:
		runs[n-1].Attempts = min(runs[n-1].Attempts+run.Attempts, math.MaxInt32)
		return runs
	}
	return append(runs, run)
}
