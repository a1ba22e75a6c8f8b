// Package embedded embeds the compressed plugins that make build puts into the program.
package embedded

import (
	"compress/gzip"
	"embed"
	"errors"
	"io"
	"io/fs"
)

// built contains the plugins that were built before this package.
//
//go:embed module
var built embed.FS

// Errors of a program that was built without a plugin.
var (
	ErrNoStarlark = errors.New("scripts need an interpreter that this sonde was built without: in a checkout of Sonde, run make build, and use bin/sonde")
	ErrNoGRPC     = errors.New("grpc probes need a plugin that this sonde was built without: in a checkout of Sonde, run make build, and use bin/sonde")
)

// Starlark returns the plugin that runs scripts, or ErrNoStarlark.
func Starlark() ([]byte, error) { return read(built, "starlark", ErrNoStarlark) }

// GRPC returns the plugin for grpc probes, or ErrNoGRPC.
func GRPC() ([]byte, error) { return read(built, "grpc", ErrNoGRPC) }

func read(files fs.FS, name string, missing error) ([]byte, error) {
	f, err := files.Open("module/" + name + ".wasm.gz")
	if err != nil {
		return nil, missing
	}
	defer f.Close()
	z, err := gzip.NewReader(f)
	if err != nil {
		return nil, err
	}
	return io.ReadAll(z)
}
