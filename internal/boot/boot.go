// Package boot identifies the present boot of the machine, so that process IDs and times since
// boot that were written before are not taken for those of now.
package boot

import (
	"bytes"
	"os"
	"runtime"
)

// ID returns an ID that each boot of the machine has for itself, and "" on systems that have none. It may be
// called concurrently. After an error, such as too many open files, it is empty.
func ID() (string, error) {
	if runtime.GOOS != "linux" {
		return "", nil
	}
	text, err := os.ReadFile("/proc/sys/kernel/random/boot_id")
	return string(bytes.TrimSpace(text)), err
}
