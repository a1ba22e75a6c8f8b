// Package format formats HCL in the canonical style: indents of two spaces, aligned
// equals signs and comments.
//
// It is a separate package so that programs that only read configurations do not link
// the code that writes them.
package format

import (
	"github.com/hashicorp/hcl/v2/hclwrite"

	"github.com/sonde-probe/sonde/config"
)

// Source formats s in the canonical style, which changes only white space. If s has
// syntax errors, Source returns its text unchanged, with the errors. If s is in the
// JSON syntax, Source returns its text unchanged.
func Source(s config.Source) ([]byte, config.Diagnostics) {
	if diags := config.Syntax(s); diags.HasErrors() || s.JSON() {
		return s.Bytes, diags
	}
	return hclwrite.Format(s.Bytes), nil
}
