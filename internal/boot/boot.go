// Package boot identifies the current boot of the machine, so that recorded process IDs and times since boot of an
// earlier boot are not mistaken for current ones.
package boot

import (
	"bytes"
	"os"
	"runtime"
)

// ID returns an ID that is unique to this boot of the machine, or "" on systems that have none. It is safe for
// concurrent use. After an error, such as too many open files, it is empty.
func ID() (string, error) {
	if runtime.GOOS != "linux" {
		return "", nil
	}
	text, err := os.ReadFile("/proc/sys/kernel/random/boot_id")
	return string(bytes.TrimSpace(text)), err
}
