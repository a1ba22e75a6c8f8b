//go:build !linux

package systemdtest

import "syscall"

func attributes() *syscall.SysProcAttr { return nil }
