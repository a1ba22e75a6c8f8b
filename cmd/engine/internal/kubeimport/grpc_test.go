package kubeimport

import (
	"path/filepath"
	"strings"
	"testing"

	"github.com/sonde-probe/sonde/tests/program"
	"github.com/sonde-probe/sonde/tests/tier"
)

func TestTheGRPCPluginIsImportedAsABlock(t *testing.T) {
	tier.Slow(t)
	name := filepath.Join("testdata", "grpc-service.yaml")
	out, stderr, err := runImport(nil, "--grpc-plugin", program.Plugin(t, "grpc"), name)
	if err != nil {
		t.Fatalf("%v\n%s", err, stderr)
	}
	for _, want := range []string{"plugin \"grpc\" {\n", "  probe \"liveness\" {\n    grpc { port = 9000 }\n"} {
		if !strings.Contains(out, want) {
			t.Errorf("there is no %q in\n%s", want, out)
		}
	}
	if strings.Contains(stderr, "left out") {
		t.Errorf("stderr is\n%s", stderr)
	}
	web, _, err := runImport(nil, "--grpc-plugin", program.Plugin(t, "grpc"), filepath.Join("testdata", "nginx-deployment.yaml"))
	if err != nil || strings.Contains(web, "plugin") {
		t.Errorf("a manifest without grpc is imported as %v\n%s", err, web)
	}
}

func TestAPluginFileThatDoesNotExistIsRejected(t *testing.T) {
	_, _, err := runImport(nil, "--grpc-plugin", "none.wasm", filepath.Join("testdata", "grpc-service.yaml"))
	if err == nil || !strings.HasPrefix(err.Error(), "--grpc-plugin: open /") || !strings.HasSuffix(err.Error(), "/none.wasm: no such file or directory") {
		t.Errorf("the error is %v", err)
	}
}
