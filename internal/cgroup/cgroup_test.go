package cgroup

import (
	"maps"
	"os"
	"path/filepath"
	"slices"
	"testing"
)

func TestTheCgroupsOfAProcessAreFound(t *testing.T) {
	const (
		v1      = "32 31 0:29 / /sys/fs/cgroup/cpu rw,relatime - cgroup cgroup rw,cpu\n33 31 0:30 / /sys/fs/cgroup/pids rw - cgroup cgroup rw,pids,misc\n"
		pure    = "31 23 0:28 / /sys/fs/cgroup rw,nosuid shared:4 - cgroup2 cgroup2 rw,nsdelegate\n"
		hybrid  = v1 + "41 31 0:38 / /sys/fs/cgroup/unified rw,relatime - cgroup2 cgroup2 rw\n"
		part    = "31 23 0:28 /docker/abc /sys/fs/cgroup ro - cgroup2 cgroup rw\n"
		above   = "31 23 0:28 /.. /sys/fs/cgroup ro - cgroup2 cgroup rw\n" + "32 23 0:28 /../.. /mnt ro - cgroup2 cgroup rw\n"
		spaced  = "31 23 0:28 /a\\040b /sys/fs/my\\040cgroup\\134 ro - cgroup2 cgroup rw\n"
		another = "31 23 0:28 /docker/abc/x /sys/fs/cgroup ro - cgroup2 cgroup rw\n"
	)
	for name, c := range map[string]struct {
		mounts, membership, controller string
		want                           []string
	}{
		"pure": {pure, "0::/system.slice/sonde.service\n", unified,
			[]string{"/sys/fs/cgroup/system.slice/sonde.service", "/sys/fs/cgroup/system.slice", "/sys/fs/cgroup"}},
		"root":                {pure, "0::/\n", unified, []string{"/sys/fs/cgroup"}},
		"hybrid":              {hybrid, "4:cpu:/x\n0::/y\n", unified, []string{"/sys/fs/cgroup/unified/y", "/sys/fs/cgroup/unified"}},
		"a controller":        {hybrid, "8:misc,pids:/x\n0::/y\n", "pids", []string{"/sys/fs/cgroup/pids/x", "/sys/fs/cgroup/pids"}},
		"another controller":  {hybrid, "8:pids:/x\n4:cpu:/\n0::/y\n", "cpu", []string{"/sys/fs/cgroup/cpu"}},
		"no such controller":  {hybrid, "8:pids:/x\n0::/y\n", "memory", nil},
		"version 1 only":      {v1, "4:cpu:/x\n", unified, nil},
		"not mounted":         {v1, "0::/\n", unified, nil},
		"part of it":          {part, "0::/docker/abc/y\n", unified, []string{"/sys/fs/cgroup/y", "/sys/fs/cgroup"}},
		"just that part":      {part, "0::/docker/abc\n", unified, []string{"/sys/fs/cgroup"}},
		"outside of the part": {another, "0::/docker/abc\n", unified, nil},
		"outside namespace":   {pure, "0::/../x\n", unified, nil},
		"root outside":        {above, "0::/x\n", unified, nil},
		"above, and its own":  {above + pure, "0::/x\n", unified, []string{"/sys/fs/cgroup/x", "/sys/fs/cgroup"}},
		"name with dots":      {pure, "0::/..x\n", unified, []string{"/sys/fs/cgroup/..x", "/sys/fs/cgroup"}},
		"spaces":              {spaced, "0::/a b/c\n", unified, []string{`/sys/fs/my cgroup\/c`, `/sys/fs/my cgroup\`}},
		"garbage":             {"- - -\n\n - cgroup2 \n", "0:\n::\n", unified, nil},
		"nothing":             {"", "", "pids", nil},
	} {
		t.Run(name, func(t *testing.T) {
			if got := find(c.mounts, c.membership, c.controller); !slices.Equal(got, c.want) {
				t.Errorf("got %q, want %q", got, c.want)
			}
		})
	}
}

func TestNumbersAreRead(t *testing.T) {
	dir := t.TempDir()
	for file, text := range map[string]string{"current": "12\n", "max": "max\n", "events": "low 1\nmax 34\nbad\n"} {
		if err := os.WriteFile(filepath.Join(dir, file), []byte(text), 0o600); err != nil {
			t.Fatal(err)
		}
	}
	if n, ok, err := Number(dir, "current"); n != 12 || !ok || err != nil {
		t.Errorf("got %d, %v, %v", n, ok, err)
	}
	if events, err := Events(dir, "events"); err != nil || !maps.Equal(events, map[string]int64{"low": 1, "max": 34}) {
		t.Errorf("got %v, %v", events, err)
	}
	if events, err := Events(dir, "missing"); len(events) != 0 || err != nil {
		t.Errorf("a missing file has %v, %v", events, err)
	}
	for _, file := range []string{"max", "missing", "events"} {
		if n, ok, err := Number(dir, file); ok || err != nil {
			t.Errorf("%s has the number %d, %v", file, n, err)
		}
	}
	const unreadable = "." // a directory
	if _, _, err := Number(dir, unreadable); err == nil {
		t.Error("no error for a number that cannot be read")
	}
	if _, err := Events(dir, unreadable); err == nil {
		t.Error("no error for events that cannot be read")
	}
}
