package guard

import (
	"encoding/json"
	"os"
	"strings"
	"syscall"
	"testing"

	"github.com/sonde-probe/sonde/internal/shortage"
)

func TestOnlyWhatTheKernelRefusesMayBeTheCgroupsFault(t *testing.T) {
	report := func(text string) error { return awaitLaunch(json.NewDecoder(strings.NewReader(text))) }
	for name, c := range map[string]struct {
		err                error
		mayBlame, shortage bool
	}{
		"nothing":                            {nil, false, false},
		"the cgroup takes no processes":      {os.NewSyscallError("fork/exec", syscall.EBUSY), true, false},
		"a nice value that is not permitted": {report(`{"Error": "nice cannot be set to -5", "Errno": 1}`), false, false},
		"a launcher without its guard":       {report(`{"Error": "its guard has ended"}`), false, false},
		"a program that does not exist":      {report(`{"Ready": true} {"Error": "start /missing", "Errno": 2}`), false, false},
		"a launcher that was killed":         {report(``), false, true},
		"a command":                          {report(`{"Ready": true}`), false, false},
	} {
		if got := mayBlameCgroup(c.err); got != c.mayBlame {
			t.Errorf("%s: the cgroup may be blamed: %v", name, got)
		}
		if got := c.err != nil && shortage.IsFork(c.err); got != c.shortage {
			t.Errorf("%s: a shortage: %v", name, got)
		}
	}
}
