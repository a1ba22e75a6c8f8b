package process

import (
	"errors"
	"os"
	"regexp"
	"strings"
	"syscall"
	"testing"

	"github.com/sonde-probe/sonde/restart"
)

func TestAProcessHasItsLimits(t *testing.T) {
	c := Config{Command: []string{"/bin/cat", "/proc/self/limits"}, Rlimits: map[string]string{
		"nofile": "100:200", "core": "0", "as": "256MiB", "data": "64MiB:128MiB", "cpu": "7", "stack": "1MiB", "fsize": "4096", "memlock": "0", "nproc": "5000",
	}}
	got := begin(t, c).exit(t)
	for name, want := range map[string]string{
		"open files": "100 +200", "core file size": "0 +0", "address space": "268435456 +268435456", "data size": "67108864 +134217728", "cpu time": "7 +7",
		"stack size": "1048576 +1048576", "file size": "4096 +4096", "locked memory": "0 +0", "processes": "5000 +5000",
	} {
		if !regexp.MustCompile(`(?m)^Max ` + name + ` +` + want + ` `).MatchString(got.Output) {
			t.Errorf("%s is not %s: exit %+v", name, want, got)
		}
	}
}

// The Go runtime raises limits, so programs could get other limits than those of the engine.
func TestALauncherChangesNothingElse(t *testing.T) {
	show := sh(`cat /proc/self/limits; ls /proc/self/fd; grep -E '^(Sig(Pnd|Blk|Ign|Cgt)|Uid|Gid|Groups|NoNewPrivs|Cap)' /proc/self/status; umask; pwd; unset NOTIFY_SOCKET; env | sort`)
	show.Dir = t.TempDir()
	want := begin(t, show).exit(t).Output
	show.Rlimits = map[string]string{"core": "0"}
	got := begin(t, show).exit(t).Output
	core := regexp.MustCompile(`(?m)^Max core .*$`)
	if got, want = core.ReplaceAllString(got, ""), core.ReplaceAllString(want, ""); got != want {
		t.Errorf("with a limit:\n%s\nwithout:\n%s", got, want)
	}
}

func TestAProcessHasItsNiceValue(t *testing.T) {
	c := sh("nice")
	c.Nice = new(19)
	if exit := begin(t, c).exit(t); exit.Output != "19" {
		t.Errorf("exit %+v", exit)
	}
}

func TestAnotherUserHasItsLimits(t *testing.T) {
	if os.Geteuid() != 0 {
		t.Skip("only root can run commands as another user")
	}
	c := sh(`id -u; id -g; id -G; nice; ulimit -n`)
	c.User, c.Nice, c.Rlimits = "424242:4242", new(-1), map[string]string{"nofile": "99"}
	if exit := begin(t, c).exit(t); exit.Output != "424242\n4242\n4242\n-1\n99" {
		t.Errorf("exit %+v", exit)
	}
}

func TestALimitedCommandEndsWithItsGuard(t *testing.T) {
	c := sh(`echo ready; exec sleep 600`)
	c.NoCgroup, c.Rlimits = true, map[string]string{"core": "0"}
	if os.Geteuid() == 0 { // the kernel clears PR_SET_PDEATHSIG when the user changes
		c.User = "424242:4242"
	}
	l := begin(t, c)
	l.await(t, "ready")
	_ = syscall.Kill(parentOf(l.pid(t)), syscall.SIGKILL)
	if exit := l.exit(t); exit.Code != 137 || exit.Err != nil {
		t.Errorf("exit %+v", exit)
	}
	awaitGone(t, []int{l.pid(t)})
}

func TestACommandThatCannotBeLimitedIsNotStarted(t *testing.T) {
	for _, c := range []struct {
		config Config
		want   string
	}{
		{Config{Command: []string{"/no-such-program"}, Rlimits: map[string]string{"core": "0"}}, "start /no-such-program: no such file or directory"},
		{Config{Command: []string{"/bin/true"}, Rlimits: map[string]string{"nofile": "unlimited"}}, "rlimits: nofile cannot be raised above [0-9]+, the hard limit of the engine: operation not permitted"},
		{Config{Command: []string{"/bin/true"}, Dir: "/no-such-directory", Nice: new(1)}, "no such file or directory"},
	} {
		exit := driver(t, c.config).Run(t.Context(), func(restart.Begun) { t.Error("it has started") }, nil)
		if exit.Code != -1 || exit.Err == nil || !regexp.MustCompile(c.want).MatchString(exit.Err.Error()) || errors.Is(exit.Err, restart.ErrShortage) {
			t.Errorf("exit %+v, want %s", exit, c.want)
		}
	}
}

func TestWrongAttributesAreNamed(t *testing.T) {
	for _, c := range []struct {
		change func(*Config)
		want   string
	}{
		{func(c *Config) { c.Nice = new(20) }, "nice is 20; it must be from -20 to 19"},
		{func(c *Config) { c.Nice = new(-21) }, "nice is -21"},
		{func(c *Config) { c.Rlimits = map[string]string{"files": "1"} }, `rlimits has an unknown limit "files": write one of as, core, cpu, data, fsize, memlock, nofile, nproc, stack`},
		{func(c *Config) { c.Rlimits = map[string]string{"nofile": "1KiB"} }, `has nofile = "1KiB"; write a number`},
		{func(c *Config) { c.Rlimits = map[string]string{"nofile": "-1"} }, `has nofile = "-1"; write a number`},
		{func(c *Config) { c.Rlimits = map[string]string{"core": "1G"} }, `has core = "1G"; write "1GiB"`},
		{func(c *Config) { c.Rlimits = map[string]string{"as": "much"} }, `has as = "much"; write a size`},
		{func(c *Config) { c.Rlimits = map[string]string{"nofile": "2:1"} }, `has nofile = "2:1", with a soft limit, before the colon, above the hard limit: write "1:2"`},
		{func(c *Config) { c.Rlimits = map[string]string{"nofile": "1:"} }, `has nofile = "1:"; write a number`},
		{func(c *Config) { c.EnvFile = "a\x00" }, "env_file has a NUL byte"},
	} {
		config := sh("true")
		c.change(&config)
		if _, err := New(config); err == nil || !strings.Contains(err.Error(), c.want) {
			t.Errorf("got %v, want %s", err, c.want)
		}
	}
}
