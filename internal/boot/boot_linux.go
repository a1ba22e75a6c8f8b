package boot

import (
	"bytes"
	"os"
)

// ID returns an ID that each boot of the machine has for itself. It may be called concurrently.
// After an error, such as too many open files, it is empty.
func ID() (string, error) {
	text, err := os.ReadFile("/proc/sys/kernel/random/boot_id")
	return string(bytes.TrimSpace(text)), err
}
