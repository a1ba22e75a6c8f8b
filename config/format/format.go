// Package format lays HCL out in the canonical style: indents of two spaces,
// equals signs and comments in a line.
//
// It is a package of its own, so that only sonde fmt links the code that edits
// HCL.
package format

import (
	"github.com/hashicorp/hcl/v2/hclwrite"

	"github.com/sonde-probe/sonde/config"
)

// Source returns a source's text in the canonical style. Only white space
// changes. A source with errors is returned as it is, with them, and so is one in
// the JSON syntax, which has no canonical style.
func Source(s config.Source) ([]byte, config.Diagnostics) {
	if diags := config.Syntax(s); diags.HasErrors() || s.JSON() {
		return s.Bytes, diags
	}
	return hclwrite.Format(s.Bytes), nil
}
