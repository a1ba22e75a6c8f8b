package main

import (
	"bytes"
	"context"
	"os"
	"os/exec"
	"strings"
	"time"

	"github.com/rogpeppe/go-internal/testscript"

	"github.com/sonde-probe/sonde/internal/docker"
	"github.com/sonde-probe/sonde/tests/dockertest"
	"github.com/sonde-probe/sonde/tests/tier"
)

// runtimeKey is the key of a script's *dockertest.Runtime among its values.
type runtimeKey struct{}

// startRuntime is: runtime docker|podman. It starts a container runtime, the one of engines from then on, and sets SOCKET to its socket.
func startRuntime(ts *testscript.TestScript, neg bool, args []string) {
	usage(ts, !neg && len(args) == 1, "runtime docker|podman")
	t := testOf(ts)
	tier.CI(t)
	start := dockertest.Docker
	if args[0] == "podman" {
		start = dockertest.Podman
	}
	r := start(t)
	ts.Setenv("SOCKET", r.Socket)
	env := ts.Value(runtimeKey{}).(**dockertest.Runtime)
	*env = r
}

func runtimeOf(ts *testscript.TestScript) *dockertest.Runtime {
	return *ts.Value(runtimeKey{}).(**dockertest.Runtime)
}

// makeContainer is: container NAME [ARG...]. It starts a container of the program subject.
func makeContainer(ts *testscript.TestScript, neg bool, args []string) {
	usage(ts, !neg && len(args) > 0, "container NAME [ARG...]")
	runtimeOf(ts).Container(testOf(ts), args[0], args[1:]...)
}

// makeShellImage is: shellimage NAME. It makes an image with /bin/sh, cat, rm, sleep and touch.
func makeShellImage(ts *testscript.TestScript, neg bool, args []string) {
	usage(ts, !neg && len(args) == 1, "shellimage NAME")
	runtimeOf(ts).ImportShell(testOf(ts), args[0])
}

// runCompose is: compose ARG.... It runs docker-compose in the directory of the script.
func runCompose(ts *testscript.TestScript, neg bool, args []string) {
	usage(ts, !neg && len(args) > 0, "compose ARG...")
	tier.Needs(testOf(ts), "docker-compose")
	c := exec.Command("docker-compose", args...)
	c.Dir, c.Env = ts.MkAbs("."), append(os.Environ(), "DOCKER_HOST=unix://"+runtimeOf(ts).Socket)
	output, err := c.CombinedOutput()
	ts.Logf("%s", output)
	ts.Check(err)
}

// runInside is: inside NAME ARG.... It runs the program subject in the container whose name begins so.
func runInside(ts *testscript.TestScript, neg bool, args []string) {
	usage(ts, !neg && len(args) > 1, "inside NAME ARG...")
	ctx, cancel := context.WithTimeout(context.Background(), time.Minute)
	defer cancel()
	r := runtimeOf(ts)
	all, err := r.List(ctx, nil)
	ts.Check(err)
	for _, c := range all {
		if !strings.HasPrefix(strings.TrimPrefix(c.Names[0], "/"), args[0]) {
			continue
		}
		var output bytes.Buffer
		_, err := r.Run(ctx, docker.Exec{Container: c.ID, Command: append([]string{"/subject"}, args[1:]...), Stdout: &output, Stderr: &output})
		ts.Check(err)
		return
	}
	ts.Fatalf("no container has a name that begins with %s", args[0])
}
