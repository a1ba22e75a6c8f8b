package execprobe_test

import (
	"context"
	"fmt"
	"time"

	execprobe "github.com/sonde-probe/sonde/builtin/exec"
	"github.com/sonde-probe/sonde/probe"
)

func ExampleHandler_Probe() {
	h, err := execprobe.New(execprobe.Config{Command: []string{"/bin/sh", "-c", "echo not $(STATE); exit 2"}})
	if err != nil {
		fmt.Println(err)
		return
	}
	ctx, cancel := context.WithTimeout(context.Background(), 10*time.Second)
	defer cancel()
	r := h.Probe(ctx, probe.Target{Env: map[string]string{"STATE": "healthy"}})
	fmt.Println(r.Outcome, r.Reason, r.Detail)
	// Output: failure exec.exit exit status 2: not healthy
}
