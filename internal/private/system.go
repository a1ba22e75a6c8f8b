package private

import (
	"path/filepath"
	"slices"
	"strings"
)

// systemDirs have files of the operating system only, and systemFiles are others without which it does not work as it did.
var (
	systemDirs  = []string{"/bin", "/boot", "/dev", "/lib", "/lib64", "/proc", "/sbin", "/sys", "/usr/bin", "/usr/lib", "/usr/lib64", "/usr/sbin"}
	systemFiles = []string{
		"/etc/passwd", "/etc/shadow", "/etc/group", "/etc/gshadow", "/etc/sudoers", "/etc/fstab", "/etc/hosts", "/etc/resolv.conf",
		"/etc/nsswitch.conf", "/etc/ld.so.preload", "/etc/ld.so.conf", "/etc/crontab", "/etc/profile",
	}
)

// IsOfSystem reports whether a path names a file of the operating system, which nobody means a program to write.
func IsOfSystem(path string) bool {
	path = filepath.Clean(path)
	return slices.Contains(systemFiles, path) || slices.ContainsFunc(systemDirs, func(dir string) bool { return strings.HasPrefix(path, dir+"/") })
}
