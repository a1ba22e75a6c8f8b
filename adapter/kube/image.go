package kube

import (
	"path"
	"strings"
)

// ImageName returns the last element of an image's name, without tag and digest:
// "busybox" of "registry.k8s.io/busybox:1.27", or "" of "".
func ImageName(image string) string {
	if image == "" {
		return ""
	}
	return path.Base(repository(image))
}

// entrypointOf looks up the image's name without tag and digest, then the name without
// the registry, and so on without each further element from the left.
func entrypointOf(image string, entrypoints map[string][]string) ([]string, bool) {
	for name := repository(image); name != ""; {
		if words, known := entrypoints[name]; known {
			return words, true
		}
		_, name, _ = strings.Cut(name, "/")
	}
	return nil, false
}

// repository returns an image's name without tag and digest.
func repository(image string) string {
	image, _, _ = strings.Cut(image, "@")
	if colon := strings.LastIndexByte(image, ':'); colon > strings.LastIndexByte(image, '/') {
		return image[:colon]
	}
	return image
}
