package staticpods

import (
	"os"
	"testing"

	"github.com/sonde-probe/sonde/adapter/restart/process"
)

func TestMain(m *testing.M) {
	process.Guard() // the test's program is also that of the guards
	os.Exit(m.Run())
}
