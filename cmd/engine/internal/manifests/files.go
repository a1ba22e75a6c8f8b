// Package manifests converts Kubernetes manifests to targets: for sonde import, which writes them as a configuration, and for
// sonde run --pods, which runs the pods of a directory as processes, as the kubelet runs its static pods.
//
//	files.go       reads files, directories and standard input
//	entrypoints.go the flag --entrypoint: entrypoints of images
//	processes.go   how containers run as processes
//	grpc.go        handlers of grpc probes
//	handlers.go    handlers of exec, http and tcp probes
//	ports.go       finds port conflicts
//	fields.go      lists unsupported fields
//
// For sonde import:
//
//	command.go  the command, and the check of its output
//	importer.go writes manifests and their containers
//	contained.go writes container blocks
//	probe.go    writes probes
//
// For sonde run --pods:
//
//	pods.go     the flags, and adding pods to a configuration
//	dir.go      reads changed files
//	read.go     converts the containers of a manifest to targets
package manifests

import (
	"errors"
	"fmt"
	"io"
	"os"
	"path/filepath"
	"slices"
	"strings"

	"github.com/sonde-probe/sonde/cmd/engine/internal/cli"
	"github.com/sonde-probe/sonde/internal/anchors"
	"github.com/sonde-probe/sonde/internal/files"
	"github.com/sonde-probe/sonde/kube"
)

// loopback is the address at which the containers of a pod reach each other, and at which a pod that runs as processes is
// probed.
const loopback = "127.0.0.1"

// source is the content of a file.
type source struct {
	Name string
	Text []byte
}

// readFiles reads files, directories and standard input.
func readFiles(stdin io.Reader, paths []string) (all []source, errs []error) {
	for _, path := range paths {
		names, err := list(path)
		if err != nil {
			errs = append(errs, err)
		}
		for _, name := range names {
			text, err := readFile(stdin, name)
			if err == nil {
				if err = anchors.Check(text); err != nil {
					err = fmt.Errorf("%s: %w", name, err)
				}
			}
			if err != nil {
				errs = append(errs, err)
				continue
			}
			all = append(all, source{name, text})
		}
	}
	return all, errs
}

// list returns a file itself, or the manifest files of a directory, sorted by name.
func list(path string) ([]string, error) {
	if path == cli.Stdin {
		return []string{path}, nil
	}
	info, err := os.Stat(path)
	if err != nil {
		return nil, unreadable(path, err)
	}
	if !info.IsDir() {
		return []string{path}, nil
	}
	entries, err := os.ReadDir(path) // sorted by name
	var names []string
	for _, e := range entries {
		if !e.IsDir() && isManifest(e.Name()) {
			names = append(names, filepath.Join(path, e.Name()))
		}
	}
	if err == nil && len(names) == 0 {
		err = fmt.Errorf("%s has no *.yaml, *.yml or *.json file", path)
	}
	return names, err
}

// isManifest reports whether a file in a directory counts as a manifest, judging by its name.
func isManifest(name string) bool {
	return !strings.HasPrefix(name, ".") && slices.Contains([]string{".yaml", ".yml", ".json"}, filepath.Ext(name))
}

// readFile reads a file, or standard input.
func readFile(stdin io.Reader, name string) ([]byte, error) {
	if name == cli.Stdin {
		return files.ReadFrom(stdin, "standard input", kube.MaxManifestBytes)
	}
	text, err := files.Read(name, kube.MaxManifestBytes)
	if err != nil {
		return nil, unreadable(name, err)
	}
	return text, nil
}

// unreadable returns the user-visible error about an unreadable file or directory.
func unreadable(path string, err error) error {
	var inPath *os.PathError
	if errors.As(err, &inPath) {
		err = inPath.Err // without the name of the system call
	}
	return fmt.Errorf("cannot read %s: %w", path, err)
}
