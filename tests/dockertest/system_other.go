//go:build !linux

package dockertest

import "syscall"

func attributes() *syscall.SysProcAttr { return &syscall.SysProcAttr{} }

func unmount(string) {}
