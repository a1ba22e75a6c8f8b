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

// startRuntime implements runtime docker|podman: it starts a container runtime for all later engines, and sets SOCKET to its
// socket. It also implements runtime stop|start.
func startRuntime(ts *testscript.TestScript, neg bool, args []string) {
	usage(ts, !neg && len(args) == 1, "runtime docker|podman|stop|start")
	t := testOf(ts)
	switch args[0] {
	case "stop":
		runtimeOf(ts).Stop(t)
		return
	case "start":
		runtimeOf(ts).Start(t)
		return
	}
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

// makeContainer implements container [LABEL=VALUE...] NAME [ARG...]: it starts a container that runs the program subject. It
// also implements ! container NAME: it removes that container.
func makeContainer(ts *testscript.TestScript, neg bool, args []string) {
	labels := map[string]string{}
	for len(args) > 0 && strings.Contains(args[0], "=") {
		name, value, _ := strings.Cut(args[0], "=")
		labels[name], args = value, args[1:]
	}
	usage(ts, len(args) > 0 && (!neg || len(args) == 1), "container [LABEL=VALUE...] NAME [ARG...], or ! container NAME")
	r := runtimeOf(ts)
	if neg {
		ts.Check(r.Remove(context.Background(), r.Inspect(testOf(ts), args[0]).ID, true))
		return
	}
	r.ContainerOf(testOf(ts), args[0], docker.Spec{Cmd: args[1:], Labels: labels})
}

// makeShellImage implements shellimage NAME. It creates an image with /bin/sh, cat, rm, sleep and touch.
func makeShellImage(ts *testscript.TestScript, neg bool, args []string) {
	usage(ts, !neg && len(args) == 1, "shellimage NAME")
	runtimeOf(ts).ImportShell(testOf(ts), args[0])
}

// runCompose implements compose ARG.... It runs docker-compose in the directory of the script.
func runCompose(ts *testscript.TestScript, neg bool, args []string) {
	usage(ts, !neg && len(args) > 0, "compose ARG...")
	tier.Needs(testOf(ts), "docker-compose")
	c := exec.Command("docker-compose", args...)
	c.Dir, c.Env = ts.MkAbs("."), append(os.Environ(), "DOCKER_HOST=unix://"+runtimeOf(ts).Socket)
	output, err := c.CombinedOutput()
	ts.Logf("%s", output)
	ts.Check(err)
}

// runInside implements inside NAME ARG...: it runs the program subject in the container whose name begins with NAME. It also
// implements ! inside NAME: it checks that there is no such container.
func runInside(ts *testscript.TestScript, neg bool, args []string) {
	usage(ts, len(args) > 1 != neg && len(args) > 0, "inside NAME ARG..., or ! inside NAME")
	ctx, cancel := context.WithTimeout(context.Background(), time.Minute)
	defer cancel()
	r := runtimeOf(ts)
	all, err := r.List(ctx, nil)
	ts.Check(err)
	for _, c := range all {
		if !strings.HasPrefix(strings.TrimPrefix(c.Names[0], "/"), args[0]) {
			continue
		}
		if neg {
			ts.Fatalf("there is a container %s", args[0])
		}
		var output bytes.Buffer
		_, err := r.Run(ctx, docker.Exec{Container: c.ID, Command: append([]string{"/subject"}, args[1:]...), Stdout: &output, Stderr: &output})
		ts.Check(err)
		return
	}
	if neg {
		return
	}
	ts.Fatalf("no container has a name that begins with %s", args[0])
}
