// Package starlark has the plugin that runs scripts, which make build embeds.
package starlark

import (
	"embed"
	"errors"
	"io/fs"
)

// built has the plugin if it was built before this package.
//
//go:embed module
var built embed.FS

// errMissing is the error of Module in a program that was built without the plugin.
var errMissing = errors.New("scripts need an interpreter that this sonde was built without: in a checkout of Sonde, run make build, and use bin/sonde")

// Module returns the plugin that runs scripts.
func Module() ([]byte, error) { return moduleIn(built) }

func moduleIn(files fs.FS) ([]byte, error) {
	module, err := fs.ReadFile(files, "module/starlark.wasm")
	if err != nil {
		return nil, errMissing
	}
	return module, nil
}
