// Package manifests reads Kubernetes manifests, and maps their containers to targets. It
// is shared by sonde run --pods and sonde import.
//
//	manifests.go   reads files, directories and standard input
//	entrypoints.go the flag --entrypoint: entrypoints of images
//	processes.go   how containers run as processes
//	grpc.go        handlers of grpc probes
//	handlers.go    handlers of exec, http and tcp probes
//	ports.go       finds port conflicts
//	fields.go      lists unsupported fields
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
	"github.com/sonde-probe/sonde/internal/files"
	"github.com/sonde-probe/sonde/kube"
)

// Loopback is the address of the containers of a pod for each other, and for
// probes of a pod that runs as processes.
const Loopback = "127.0.0.1"

// File is a file that was read.
type File struct {
	Name string
	Text []byte
}

// Read reads files, directories and standard input.
func Read(stdin io.Reader, paths []string) (all []File, errs []error) {
	for _, path := range paths {
		names, err := list(path)
		if err != nil {
			errs = append(errs, err)
		}
		for _, name := range names {
			text, err := readFile(stdin, name)
			if err != nil {
				errs = append(errs, err)
				continue
			}
			all = append(all, File{name, text})
		}
	}
	return all, errs
}

// list returns a file, or the manifest files of a directory, sorted by name.
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
		if !e.IsDir() && IsManifest(e.Name()) {
			names = append(names, filepath.Join(path, e.Name()))
		}
	}
	if err == nil && len(names) == 0 {
		err = fmt.Errorf("%s has no *.yaml, *.yml or *.json file", path)
	}
	return names, err
}

// IsManifest reports whether a file of a directory is taken for a manifest.
func IsManifest(name string) bool {
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

// unreadable returns an error of reading a file or a directory as users see it.
func unreadable(path string, err error) error {
	var inPath *os.PathError
	if errors.As(err, &inPath) {
		err = inPath.Err // without the name of the system call
	}
	return fmt.Errorf("cannot read %s: %w", path, err)
}

// ReadRegular reads a file of a directory, and does not wait for a pipe.
func ReadRegular(name string) ([]byte, error) { return files.ReadRegular(name, kube.MaxManifestBytes) }
