package manifests

import (
	"path/filepath"
	"strings"
	"testing"

	"github.com/sonde-probe/sonde/cmd/engine/internal/embedded"
	"github.com/sonde-probe/sonde/tests/tier"
)

func TestGRPCProbesAreImported(t *testing.T) {
	tier.Slow(t)
	if _, err := embedded.GRPC(); err != nil {
		t.Skip("the plugin has not been built: make build")
	}
	out, stderr, err := runImport(nil, filepath.Join("testdata", "grpc-service.yaml"))
	if err != nil {
		t.Fatalf("%v\n%s", err, stderr)
	}
	if want := "  probe \"liveness\" {\n    grpc { port = 9000 }\n"; !strings.Contains(out, want) || strings.Contains(out, "plugin") {
		t.Errorf("there is no %q, or a plugin, in\n%s", want, out)
	}
	if strings.Contains(stderr, "left out") {
		t.Errorf("stderr is\n%s", stderr)
	}
}
