package main

import (
	"context"
	"net/http/httptest"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"testing"

	"google.golang.org/grpc"
	"google.golang.org/grpc/credentials/insecure"
	healthv1 "google.golang.org/grpc/health/grpc_health_v1"

	"github.com/sonde-probe/sonde/api"
	"github.com/sonde-probe/sonde/group"
	"github.com/sonde-probe/sonde/probe"
	"github.com/sonde-probe/sonde/tests/gatewaytest"
	"github.com/sonde-probe/sonde/tests/testsync"
)

func TestTheCommandServesWhatItFollows(t *testing.T) {
	const token = "0123456789abcdef"
	s := gatewaytest.New(t, group.Rule{}, map[string]string{"a": "10.0.0.1"})
	server, err := api.New(api.Config{Engine: s.Engine, Groups: s.Groups, Token: token})
	if err != nil {
		t.Fatal(err)
	}
	api := httptest.NewServer(server)
	defer api.Close()
	defer api.CloseClientConnections()
	dir := testsync.SocketDir(t)
	socket := filepath.Join(dir, "xds.sock")
	secret := gatewaytest.WriteFile(t, dir, "token", token+"\n")
	ctx, cancel := context.WithCancel(t.Context())
	var out testsync.Buffer
	code := make(chan int, 1)
	go func() {
		code <- run(ctx, []string{"-follow", api.URL, "-follow-token-file", secret, "-groups", "web", "-listen", "unix:" + socket}, &out)
	}()
	conn, err := grpc.NewClient("unix:"+socket, grpc.WithTransportCredentials(insecure.NewCredentials()))
	if err != nil {
		t.Fatal(err)
	}
	defer conn.Close()
	await := func(want healthv1.HealthCheckResponse_ServingStatus) {
		t.Helper()
		testsync.Until(t, want.String(), func() bool {
			conn.ResetConnectBackoff()
			answer, err := healthv1.NewHealthClient(conn).Check(t.Context(), &healthv1.HealthCheckRequest{Service: "web/a"})
			return err == nil && answer.Status == want
		})
	}
	s.Say(map[string]probe.Outcome{"a": probe.Success})
	await(healthv1.HealthCheckResponse_SERVING)
	s.Say(map[string]probe.Outcome{"a": probe.Failure})
	await(healthv1.HealthCheckResponse_NOT_SERVING)
	cancel()
	if got := testsync.Receive(t, "the end", code); got != 0 || !strings.Contains(out.String(), "listening") {
		t.Errorf("the exit code is %d, and the log\n%s", got, out.String())
	}
}

func TestTheCommandsOfThePageBuildTheCommand(t *testing.T) {
	program := gatewaytest.Build(t, "../../../..", "../../../../docs/gateways/envoy.md", "sonde-xds")
	if out, err := exec.Command(program, "-help").CombinedOutput(); err != nil || !strings.Contains(string(out), "Usage of sonde-xds") {
		t.Errorf("%v\n%s", err, out)
	}
}

func TestWrongArgumentsAreReported(t *testing.T) {
	dir := t.TempDir()
	empty := filepath.Join(dir, "empty")
	if err := os.WriteFile(empty, []byte("\n"), 0o600); err != nil {
		t.Fatal(err)
	}
	for want, c := range map[string]struct {
		words string
		code  int
	}{
		"-groups is missing":              {"", 1},
		"unexpected argument":             {"web", 64},
		"not defined":                     {"-nothing", 64},
		"Usage of sonde-xds":              {"-help", 0},
		"it must be a URL":                {"-groups web -follow 127.0.0.1:9650", 1},
		"no such file":                    {"-groups web -follow-token-file /nonexistent", 1},
		"it must contain a token":         {"-groups web -token-file " + empty, 1},
		"has no PEM block of type CERT":   {"-groups web -follow-ca " + empty, 1},
		"need each other":                 {"-groups web -cert x", 1},
		"-client-ca needs":                {"-groups web -client-ca x", 1},
		"duplicate group \"web\"":         {"-groups web,web", 1},
		`group "": name`:                  {"-groups web,", 1},
		"without authentication":          {"-groups web -listen 0.0.0.0:9782", 1},
		"must be from 0 to 10":            {"-groups web -retries 99", 1},
		"x: no such file":                 {"-groups web -cert x -key y", 1},
		"it must be an address and a por": {"-groups web -listen x", 1},
	} {
		var out testsync.Buffer
		ctx, cancel := context.WithCancel(t.Context())
		cancel()
		if code := run(ctx, strings.Fields(c.words), &out); code != c.code || !strings.Contains(out.String(), want) {
			t.Errorf("%q: the exit code is %d, want %d; the output has no %q:\n%s", c.words, code, c.code, want, out.String())
		}
	}
}
