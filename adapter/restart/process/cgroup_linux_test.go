package process

import (
	"os"
	"testing"
)

func TestOwnCgroupIsFound(t *testing.T) {
	const (
		v1      = "32 31 0:29 / /sys/fs/cgroup/cpu rw,relatime - cgroup cgroup rw,cpu\n"
		pure    = "31 23 0:28 / /sys/fs/cgroup rw,nosuid shared:4 - cgroup2 cgroup2 rw,nsdelegate\n"
		hybrid  = v1 + "41 31 0:38 / /sys/fs/cgroup/unified rw,relatime - cgroup2 cgroup2 rw\n"
		part    = "31 23 0:28 /docker/abc /sys/fs/cgroup ro - cgroup2 cgroup rw\n"
		another = "31 23 0:28 /docker/abc/x /sys/fs/cgroup ro - cgroup2 cgroup rw\n"
	)
	for name, c := range map[string]struct{ mounts, membership, want string }{
		"pure":                {pure, "0::/system.slice/sonde.service\n", "/sys/fs/cgroup/system.slice/sonde.service"},
		"root":                {pure, "0::/\n", "/sys/fs/cgroup"},
		"hybrid":              {hybrid, "4:cpu:/x\n0::/y\n", "/sys/fs/cgroup/unified/y"},
		"version 1 only":      {v1, "4:cpu:/x\n", ""},
		"not mounted":         {v1, "0::/\n", ""},
		"part of it":          {part, "0::/docker/abc/y\n", "/sys/fs/cgroup/y"},
		"just that part":      {part, "0::/docker/abc\n", "/sys/fs/cgroup"},
		"outside of the part": {another, "0::/docker/abc\n", ""},
		"outside namespace":   {pure, "0::/../x\n", ""},
		"garbage":             {"- - -\n\n - cgroup2 \n", "0:\n::\n", ""},
		"nothing":             {"", "", ""},
	} {
		t.Run(name, func(t *testing.T) {
			if got := ownCgroup(c.mounts, c.membership); got != c.want {
				t.Errorf("got %q, want %q", got, c.want)
			}
		})
	}
}

func TestParentIsParsedForAnyProcessName(t *testing.T) {
	for stat, want := range map[string]int{
		"12 (sh) S 34 12 12 0":          34,
		"12 (a) R 99 (b) S 34 12 12":    34,
		"12 (new\nline) S 34 12 12 0":   34,
		"12 (sh)":                       0,
		"":                              0,
		"12 (sh) S not-a-number 12 12 ": 0,
	} {
		if got := parent([]byte(stat)); got != want {
			t.Errorf("parent(%q) = %d, want %d", stat, got, want)
		}
	}
}

func TestBothWaysFindTheSameChildren(t *testing.T) {
	l := begin(t, sh(`echo ready; sleep 60`))
	l.await(t, "ready")
	guard := parentOf(l.pid(t))
	for name, found := range map[string][]int{"children": children(), "by parent": childrenByParent()} {
		if len(found) != 1 || found[0] != guard {
			t.Errorf("%s: %v, want %d", name, found, guard)
		}
	}
	l.cancel()
	l.exit(t)
	if parentOf(os.Getpid()) != os.Getppid() {
		t.Error("parentOf is wrong about this process")
	}
}
