package docker

import (
	"strings"
	"testing"
)

// A runtime on another machine is rejected, in each form of its address: with TLS, by SSH, or without either.
func TestOnlySocketsOfThisMachineAreUsed(t *testing.T) {
	for host, want := range map[string]string{
		"":                               "",
		"unix:///run/podman/podman.sock": "",
		"/run/podman/../docker.sock":     "",
		"tcp://10.0.0.7:2376":            "only a Unix socket of this machine is supported, such as unix:///var/run/docker.sock; for another machine, run an engine there",
		"https://10.0.0.7:2376":          "run an engine there",
		"ssh://root@10.0.0.7":            "run an engine there",
		"npipe:////./pipe/docker_engine": "run an engine there",
		"docker.sock":                    "write the path of a socket",
		"unix://docker.sock":             "write the path of a socket",
		"10.0.0.7:2376":                  "write the path of a socket",
	} {
		err := CheckHost(host)
		if (err == nil) != (want == "") || err != nil && !strings.Contains(err.Error(), want) {
			t.Errorf("%q: %v, want %q", host, err, want)
		}
		t.Setenv("DOCKER_HOST", host)
		if _, err := Socket(""); (err == nil) != (want == "") || err != nil && (!strings.HasPrefix(err.Error(), "DOCKER_HOST is") || !strings.Contains(err.Error(), want)) {
			t.Errorf("DOCKER_HOST=%q: %v, want %q", host, err, want)
		}
	}
	if socket, err := Socket("/run/podman/../docker.sock"); err != nil || socket != "/run/docker.sock" {
		t.Errorf("got %s, %v", socket, err)
	}
}
