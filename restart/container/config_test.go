package container

import (
	"testing"

	"github.com/sonde-probe/sonde/internal/docker"
)

func TestMistakesInAConfigurationAreNamed(t *testing.T) {
	t.Setenv("DOCKER_HOST", "")
	for want, c := range map[string]Config{
		`name is missing: write name or match for a container that somebody else has made, or image for one that the engine makes`:                                        {},
		`name stands beside match or image; write one of the three: name and match are for a container that somebody else has made, image for one that the engine makes`:  {Name: "a", Image: "b"},
		`user has no effect without image: the container is made by somebody else`:                                                                                        {Name: "a", User: "b"},
		`host is "tcp://10.0.0.1:2375"; Sonde reaches runtimes of this machine only, by a Unix socket: run an engine where the containers are, instead of tcp`:            {Name: "a", Host: "tcp://10.0.0.1:2375"},
		`host is "docker.sock"; write a Unix socket, such as "unix:///run/podman/podman.sock"`:                                                                            {Name: "a", Host: "docker.sock"},
		`ports has "80:http"; write the port of this machine and that of the container, such as "8080:80", "127.0.0.1:8080:80" or "53:53/udp"`:                            {Image: "a", Ports: []string{"80:http"}},
		`mounts has "./data:/data"; write a directory of this machine or the name of a volume, and the path in the container, such as "/srv/www:/www:ro" or "data:/data"`: {Image: "a", Mounts: []string{"./data:/data"}},
		`command has a NUL byte in word 2`: {Image: "a", Command: []string{"\x00"}},
		"":                                 {Image: "a", Ports: []string{"80", "8080:80", "[::1]:53:53/udp"}, Mounts: []string{"/srv:/srv:ro"}, Host: "/run/podman/podman.sock"},
	} {
		got := ""
		if err := c.Check(); err != nil {
			got = err.Error()
		}
		if got != want {
			t.Errorf("got %s\nwant %s", got, want)
		}
	}
	t.Setenv("DOCKER_HOST", "ssh://a@b")
	if _, err := (Config{Name: "a"}).Socket(); err == nil || err.Error() != `host is not set, and DOCKER_HOST is "ssh://a@b"; Sonde reaches runtimes of this machine only, by a Unix socket: run an engine where the containers are, instead of ssh` {
		t.Error(err)
	}
}

func TestPublishedPortsAndMounts(t *testing.T) {
	s, err := Config{Image: "a", Ports: []string{"80", "0.0.0.0:53:5353/udp"}, Mounts: []string{"data:/data", "/srv:/www:ro"}, Resources: &Resources{CPUs: 0.5}}.spec()
	if err != nil {
		t.Fatal(err)
	}
	h := s.HostConfig
	if h.PortBindings["80/tcp"][0] != (docker.PortBinding{HostIP: "127.0.0.1"}) || h.PortBindings["5353/udp"][0] != (docker.PortBinding{HostIP: "0.0.0.0", HostPort: "53"}) {
		t.Errorf("ports: %+v", h.PortBindings)
	}
	if h.Mounts[0] != (docker.Mount{Type: "volume", Source: "data", Target: "/data"}) || h.Mounts[1] != (docker.Mount{Type: "bind", Source: "/srv", Target: "/www", ReadOnly: true}) {
		t.Errorf("mounts: %+v", h.Mounts)
	}
	if h.NanoCPUs != 5e8 {
		t.Errorf("processors: %v", h.NanoCPUs)
	}
}
