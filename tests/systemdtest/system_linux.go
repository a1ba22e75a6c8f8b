package systemdtest

import "syscall"

// attributes are those of the processes of a systemd: they end with the test.
func attributes() *syscall.SysProcAttr {
	return &syscall.SysProcAttr{Setsid: true, Pdeathsig: syscall.SIGKILL}
}
