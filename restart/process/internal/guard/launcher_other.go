//go:build !linux

package guard

import (
	"errors"
	"syscall"
)

// Resources is empty: only Linux has launchers.
var Resources map[string]Resource

// launch returns an error: only Linux has launchers.
func launch(Start, *syscall.SysProcAttr) (pid int, err error) {
	return 0, errors.New("rlimits and nice need Linux")
}
