package restart

import (
	"slices"
	"strconv"
	"strings"

	"github.com/sonde-probe/sonde/probe"
)

// maxExitCode is the largest exit status of a process.
const maxExitCode = 255

// restarts reports whether a restart follows an exit with the status code. failing: a failing probe caused the exit.
func (u Unit) restarts(code int, failing bool) bool {
	return u.Policy.restarts(code, failing) || slices.ContainsFunc(u.RestartExitCodes, func(text string) bool {
		low, high, _ := parseExitCodes(text)
		return low <= code && code <= high
	})
}

// parseExitCodes parses an element of Unit.RestartExitCodes: "42" or "64-78". For an invalid text it returns an empty
// range.
func parseExitCodes(text string) (low, high int, valid bool) {
	from, to, isRange := strings.Cut(text, "-")
	if !isRange {
		to = from
	}
	least, err := strconv.ParseUint(from, 10, 8)
	most, errMost := strconv.ParseUint(to, 10, 8)
	if err != nil || errMost != nil || least > most {
		return 0, -1, false
	}
	return int(least), int(most), true
}

// checkExitCodes validates RestartExitCodes and adds an error to wrong.
func (u Unit) checkExitCodes(wrong *probe.FieldErrors) {
	for _, text := range u.RestartExitCodes {
		if _, _, valid := parseExitCodes(text); !valid {
			wrong.Add("restart_exit_codes", `has %q; write statuses from 0 to %d such as 42, or ranges such as "64-78"`, text, maxExitCode)
			return
		}
	}
}
