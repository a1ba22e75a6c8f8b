package kubeimport

import (
	"bytes"
	"fmt"
	"io"
	"os"
	"path/filepath"

	"github.com/spf13/cobra"

	"github.com/sonde-probe/sonde/cmd/engine/internal/blackboximport"
	"github.com/sonde-probe/sonde/cmd/engine/internal/cli"
	"github.com/sonde-probe/sonde/internal/files"
	"github.com/sonde-probe/sonde/wasmhost"
)

// readBlackbox reads a file, and reports whether it is a configuration of blackbox_exporter. What
// it reads of standard input can be read again.
func readBlackbox(stdin *io.Reader, path string) (text []byte, is bool, err error) {
	if path == "-" {
		text, err = io.ReadAll(io.LimitReader(*stdin, blackboximport.MaxBytes+1))
		*stdin = io.MultiReader(bytes.NewReader(text), *stdin)
		return text, blackboximport.Recognizes(text), err
	}
	if info, err := os.Stat(path); err != nil || !info.Mode().IsRegular() {
		return nil, false, nil // manifests say what is wrong
	}
	text, err = files.ReadRegular(path, blackboximport.MaxBytes)
	if err != nil {
		return nil, false, nil // likewise
	}
	return text, blackboximport.Recognizes(text), nil
}

// importBlackbox writes the modules of a configuration of blackbox_exporter.
func importBlackbox(c *cobra.Command, f *flags, path string, text []byte) error {
	o := blackboximport.Options{Allow: f.allow, Lax: f.lax}
	var err error
	if o.DNS, err = plugin("--dns-plugin", f.dns); err != nil {
		return err
	}
	if o.GRPC, err = plugin("--grpc-plugin", f.grpc.File); err != nil {
		return err
	}
	doc, warnings, err := blackboximport.Write(path, text, o)
	if err != nil {
		show(c, "error", []error{err})
		return cli.ErrReported(cli.ExitFailed)
	}
	written, err := checked(c.Context(), doc.Bytes())
	if err != nil {
		return err
	}
	show(c, "warning", warnings)
	_, err = c.OutOrStdout().Write(written)
	return err
}

// plugin returns the file that a flag names, with its hash; none if the flag is not given.
func plugin(flag, file string) (blackboximport.Plugin, error) {
	if file == "" {
		return blackboximport.Plugin{}, nil
	}
	module, err := files.ReadRegular(file, wasmhost.DefaultModuleSize)
	if err != nil {
		return blackboximport.Plugin{}, fmt.Errorf("%s: %w", flag, err)
	}
	if file, err = filepath.Abs(file); err != nil { // the configuration can be moved anywhere
		return blackboximport.Plugin{}, err
	}
	return blackboximport.Plugin{File: file, SHA256: cli.SHA256(module)}, nil
}
