package process

import (
	"errors"
	"os"
	"strings"
	"testing"

	"golang.org/x/sys/unix"

	"github.com/sonde-probe/sonde/internal/reexec"
	"github.com/sonde-probe/sonde/restart"
	"github.com/sonde-probe/sonde/tests/faulttest"
)

// failsToStart checks that a start fails for lack of resources, with the given text.
func failsToStart(t *testing.T, d *Driver, text string) {
	t.Helper()
	exit := d.Run(t.Context(), func(b restart.Begun) { t.Errorf("instance %s began", b.ID) }, nil)
	if !errors.Is(exit.Err, restart.ErrShortage) || !strings.Contains(exit.Err.Error(), text) {
		t.Errorf("the exit is %+v, want a shortage: %s", exit, text)
	}
}

func TestAStartWithoutDescriptorsIsAShortage(t *testing.T) {
	d := driver(t, Config{Command: []string{"true"}, User: "root"}) // reads the file of users
	restore := faulttest.NoDescriptors(t)
	defer restore()
	failsToStart(t, d, "too many open files")
	d = driver(t, Config{Command: []string{"true"}})
	failsToStart(t, d, "too many open files")
}

// Go's runtime ends a guard that cannot start its threads.
func TestAGuardThatEndsBeforeItStartsTheCommandIsAShortage(t *testing.T) {
	before := reexec.Executable
	defer func() { reexec.Executable = before }()
	reexec.Executable = "/bin/false"
	failsToStart(t, driver(t, Config{Command: []string{"true"}}), "guard ended before it started the command: exit status 1")
}

// The kernel counts the processes of the command's user.
func TestACommandThatMayNotBeStartedForLackOfProcessesIsAShortage(t *testing.T) {
	if os.Geteuid() != 0 {
		t.Skip("needs root, to switch the user")
	}
	c := Config{Command: []string{"/bin/sleep", "600"}, User: "65533:65533"}
	first := begin(t, c)
	var before unix.Rlimit
	if err := unix.Prlimit(0, unix.RLIMIT_NPROC, nil, &before); err != nil {
		t.Fatal(err)
	}
	none := unix.Rlimit{Cur: 0, Max: before.Max}
	if err := unix.Prlimit(0, unix.RLIMIT_NPROC, &none, nil); err != nil {
		t.Fatal(err)
	}
	defer func() {
		if err := unix.Prlimit(0, unix.RLIMIT_NPROC, &before, nil); err != nil {
			t.Error(err)
		}
	}()
	failsToStart(t, driver(t, c), "resource temporarily unavailable")
	first.cancel()
	first.exit(t)
}
