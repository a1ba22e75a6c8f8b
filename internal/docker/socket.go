package docker

import (
	"cmp"
	"fmt"
	"os"
	"path/filepath"
	"slices"
	"strings"
)

// The sockets of runtimes, in the order in which Socket tries them.
const (
	dockerSocket       = "/var/run/docker.sock"
	podmanSocket       = "/run/podman/podman.sock"
	podmanSocketOfUser = "podman/podman.sock" // below XDG_RUNTIME_DIR
)

// Socket returns the path of the socket for the setting host: a path, a URL such as unix:///run/podman/podman.sock, or
// "" for the default. The error does not begin with the name of the field, except for DOCKER_HOST.
func Socket(host string) (string, error) {
	socket, err := socketOf(cmp.Or(host, os.Getenv("DOCKER_HOST")))
	if err != nil && host == "" {
		err = fmt.Errorf("DOCKER_HOST %w", err)
	}
	if socket != "" || err != nil {
		return socket, err
	}
	candidates := []string{dockerSocket, podmanSocket}
	if dir := os.Getenv("XDG_RUNTIME_DIR"); dir != "" {
		candidates = slices.Insert(candidates, 1, filepath.Join(dir, podmanSocketOfUser))
	}
	for _, path := range candidates {
		if _, err := os.Stat(path); err == nil {
			return path, nil
		}
	}
	return dockerSocket, nil
}

// CheckHost returns an error if a host is invalid, without the name of its field. It accesses no socket.
func CheckHost(host string) error {
	_, err := socketOf(host)
	return err
}

// socketOf returns the path of the socket in a host, or "" if host is empty.
func socketOf(host string) (string, error) {
	scheme, rest, isURL := strings.Cut(host, "://")
	switch {
	case host == "":
		return "", nil
	case isURL && scheme == "unix":
		host = rest
	case isURL && (scheme == "tcp" || scheme == "http" || scheme == "https" || scheme == "ssh" || scheme == "npipe" || scheme == "fd"):
		return "", fmt.Errorf("is %q; only a Unix socket of this machine is supported, such as unix:///var/run/docker.sock; for another machine, run an engine there", host)
	}
	if !filepath.IsAbs(host) || strings.Contains(host, "\x00") {
		return "", fmt.Errorf("is %q; write the path of a socket, such as unix:///var/run/docker.sock", host)
	}
	return filepath.Clean(host), nil
}
