package private

import (
	"path/filepath"
	"slices"
	"strings"
)

// systemDirs contain only files of the operating system. systemFiles are further files that the operating system needs.
var (
	systemDirs  = []string{"/bin", "/boot", "/dev", "/lib", "/lib64", "/proc", "/sbin", "/sys", "/usr/bin", "/usr/lib", "/usr/lib64", "/usr/sbin"}
	systemFiles = []string{
		"/etc/passwd", "/etc/shadow", "/etc/group", "/etc/gshadow", "/etc/sudoers", "/etc/fstab", "/etc/hosts", "/etc/resolv.conf",
		"/etc/nsswitch.conf", "/etc/ld.so.preload", "/etc/ld.so.conf", "/etc/crontab", "/etc/profile",
	}
)

// IsOfSystem reports whether a path names a file of the operating system, which a program should not write.
func IsOfSystem(path string) bool {
	path = filepath.Clean(path)
	return slices.Contains(systemFiles, path) || slices.ContainsFunc(systemDirs, func(dir string) bool { return strings.HasPrefix(path, dir+"/") })
}
