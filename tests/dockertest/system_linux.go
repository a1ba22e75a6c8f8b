package dockertest

import "syscall"

// attributes are those of a daemon: it ends with the test.
func attributes() *syscall.SysProcAttr {
	return &syscall.SysProcAttr{Setsid: true, Pdeathsig: syscall.SIGTERM}
}

func unmount(dir string) { _ = syscall.Unmount(dir, syscall.MNT_DETACH) }
