package dockertest

import "syscall"

// attributes returns the attributes of a daemon: it is terminated with the test.
func attributes() *syscall.SysProcAttr {
	return &syscall.SysProcAttr{Setsid: true, Pdeathsig: syscall.SIGTERM}
}

func unmount(dir string) { _ = syscall.Unmount(dir, syscall.MNT_DETACH) }
