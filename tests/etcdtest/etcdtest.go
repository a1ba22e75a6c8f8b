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

// Single returns etcd with a single member, which keeps its data in the folder etcd.data of its working directory. client and peer are
// the URLs at which it listens.
func Single(client, peer string) *exec.Cmd {
	return Command("--data-dir", "etcd.data", "--log-level", "warn", "--listen-client-urls", client, "--advertise-client-urls", client,
		"--listen-peer-urls", peer, "--initial-advertise-peer-urls", peer, "--initial-cluster", "default="+peer)
}

func command(name string, args ...string) *exec.Cmd {
	if runtime.GOOS != "linux" {
		return exec.Command(name, args...)
	}
	c := exec.Command(reexec.Executable, append([]string{name}, args...)...)
	c.Env = append(os.Environ(), withoutFlush+"=1")
	return c
}
