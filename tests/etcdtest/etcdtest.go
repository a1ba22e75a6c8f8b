// Package etcdtest starts etcd so that its speed does not depend on the machine's disk: etcd flushes each change, and with a disk
// that needs hundreds of milliseconds for that, its members elect no leader and engines lose their leases.
package etcdtest

import (
	"os"
	"os/exec"
	"runtime"

	"github.com/sonde-probe/sonde/internal/reexec"
)

// withoutFlush is the environment variable with which this program, when started again, becomes the program that its arguments
// name, with an exempted fsync(2).
const withoutFlush = "SONDE_TEST_WITHOUT_FLUSH"

// Command returns etcd with arguments. On Linux, it does not flush files. Its data outlive the process, even if it is killed, but
// not a crash of the machine.
func Command(args ...string) *exec.Cmd { return command("etcd", args...) }

func command(name string, args ...string) *exec.Cmd {
	if runtime.GOOS != "linux" {
		return exec.Command(name, args...)
	}
	c := exec.Command(reexec.Executable, append([]string{name}, args...)...)
	c.Env = append(os.Environ(), withoutFlush+"=1")
	return c
}
