package process

import (
	"strings"
	"testing"

	"golang.org/x/sys/unix"

	"github.com/sonde-probe/sonde/restart/process/internal/guard"
)

func TestWhatNeedsRootIsNamed(t *testing.T) {
	hard := func(name string) (uint64, error) {
		return map[string]uint64{"nofile": 4096, "core": guard.Unlimited}[name], nil
	}
	for name, c := range map[string]struct {
		nice    int
		rlimits map[string]string
		root    bool
		want    string
	}{
		"what anybody may set": {0, map[string]string{"nofile": "1024:4096", "core": "unlimited"}, false, ""},
		"a high priority":      {-1, nil, false, "nice is -1, which needs root: this user may set 0 or more"},
		"a hard limit":         {5, map[string]string{"nofile": "1024:8192"}, false, "rlimits has nofile with a hard limit above 4096, that of this user"},
		"both, by root":        {-20, map[string]string{"nofile": "8192"}, true, ""},
	} {
		config := sh("true")
		config.Nice, config.Rlimits = new(c.nice), c.rlimits
		err := config.checkPermitted(permissions{0, hard, c.root, c.root})
		if (err == nil) != (c.want == "") || err != nil && !strings.Contains(err.Error(), c.want) {
			t.Errorf("%s: got %v, want %s", name, err, c.want)
		}
	}
}

// What is looked up is what the kernel allows.
func TestTheLowestNiceValueMayBeSet(t *testing.T) {
	lowest := lowestNice()
	if lowest < minNice || lowest > maxNice {
		t.Fatalf("the lowest nice value is %d", lowest)
	}
	c := sh("true")
	c.Nice, c.Rlimits = new(lowest), map[string]string{"core": "0"}
	if err := c.CheckPermitted(); err != nil {
		t.Errorf("got %v", err)
	}
	if exit := begin(t, c).exit(t); exit.Code != 0 || exit.Err != nil {
		t.Errorf("with the nice value %d, %v: %+v", lowest, hasCapability(unix.CAP_SYS_NICE), exit)
	}
}
