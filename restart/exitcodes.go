package restart

import (
	"slices"
	"strconv"
	"strings"

	"github.com/sonde-probe/sonde/probe"
)

// maxExitCode is the largest exit status of a process.
const maxExitCode = 255

// restarts reports whether a restart follows an exit with this status, because of a failing probe or not.
func (u Unit) restarts(code int, failing bool) bool {
	return u.Policy.restarts(code, failing) || slices.ContainsFunc(u.RestartExitCodes, func(text string) bool {
		low, high, _ := parseExitCodes(text)
		return low <= code && code <= high
	})
}

// parseExitCodes parses one of Unit.RestartExitCodes: "42" or "64-78". A text that is not valid has no codes.
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

// checkExitCodes adds what is wrong with RestartExitCodes.
func (u Unit) checkExitCodes(wrong *probe.FieldErrors) {
	for _, text := range u.RestartExitCodes {
		if _, _, valid := parseExitCodes(text); !valid {
			wrong.Add("restart_exit_codes", `has %q; write statuses from 0 to %d such as 42, or ranges such as "64-78"`, text, maxExitCode)
			return
		}
	}
}
