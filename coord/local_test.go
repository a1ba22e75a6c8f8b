package coord_test

import (
	"testing"
	"testing/synctest"

	"github.com/sonde-probe/sonde/coord"
	"github.com/sonde-probe/sonde/coord/coordtest"
)

func TestLocalConforms(t *testing.T) {
	coordtest.Run(t, coordtest.Config{
		New: func(*testing.T) coord.Backend { return coord.NewLocal() },
		Run: synctest.Test,
	})
}
