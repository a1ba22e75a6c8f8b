package kubeimport

import (
	"bytes"
	"io"
	"os"

	"github.com/spf13/cobra"

	"github.com/sonde-probe/sonde/cmd/engine/internal/blackboximport"
	"github.com/sonde-probe/sonde/cmd/engine/internal/cli"
	"github.com/sonde-probe/sonde/internal/files"
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
	doc, warnings, err := blackboximport.Write(path, text, blackboximport.Options{Allow: f.allow, Lax: f.lax})
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
