package systemdtest

import "syscall"

// attributes returns the attributes of the processes of a systemd: they are killed with the test.
func attributes() *syscall.SysProcAttr {
	return &syscall.SysProcAttr{Setsid: true, Pdeathsig: syscall.SIGKILL}
}
