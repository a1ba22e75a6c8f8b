package probe

import (
	"fmt"
	"math"
	"strconv"
	"strings"
)

// OutcomeRun is a number of attempts in a row with the same outcome.
type OutcomeRun struct {
	Outcome  Outcome
	Attempts uint64 // from 1 to math.MaxInt32
}

// outcomeLetters are the letters of outcomes, by outcome.
const outcomeLetters = "USWF"

// FormatOutcomes returns outcomes as words, as ParseOutcomes reads them: "S1440 F2 S10". An outcome that does
// not exist is written as unknown.
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

// ParseOutcomes reads outcomes, each as a letter: S for success, W warning, F failure, U unknown. A
// number after a letter says how many times it stands: S3 is SSS. White space has no meaning, and a
// comment goes from # to the end of the line. Two runs in a row never have the same outcome.
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
					return nil, fmt.Errorf("%c%.20s is not a number of attempts: write a number from 1 to %d after a letter", letter, text[:digits], math.MaxInt32)
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

// AppendOutcomes appends a run to others, of which it may make the last one longer.
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
