package sondecaddy

import (
	"os/exec"
	"strings"
	"testing"

	"github.com/sonde-probe/sonde/tests/gatewaytest"
)

func TestTheCommandsOfThePageBuildCaddyWithTheModule(t *testing.T) {
	program := gatewaytest.Build(t, "../..", page, "caddy")
	modules, err := exec.Command(program, "list-modules").CombinedOutput()
	for _, name := range []string{"http.reverse_proxy.upstreams.sonde", "http.handlers.file_server"} {
		if err != nil || !strings.Contains(string(modules), name+"\n") {
			t.Errorf("Caddy has no module %s: %v\n%s", name, err, modules)
		}
	}
}
