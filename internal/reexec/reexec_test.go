package reexec

import (
	"os"
	"testing"
)

func TestTheProgramIsFoundWithoutProc(t *testing.T) {
	self, err := os.Executable()
	if err != nil {
		t.Fatal(err)
	}
	if _, err := os.Stat("/proc/self/exe"); err == nil {
		if got := find("/proc/self/exe", "sonde"); got != "/proc/self/exe" {
			t.Errorf("got %s", got)
		}
	}
	if got := find("/does/not/exist", "sonde"); got != self {
		t.Errorf("got %s, want %s", got, self)
	}
}
