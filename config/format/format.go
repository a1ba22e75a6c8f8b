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

// Source returns the text of a source in the canonical style, which differs only in
// white space. It returns the text of a source with syntax errors unchanged, with the
// errors, and the text of one in the JSON syntax unchanged.
func Source(s config.Source) ([]byte, config.Diagnostics) {
	if diags := config.Syntax(s); diags.HasErrors() || s.JSON() {
		return s.Bytes, diags
	}
	return hclwrite.Format(s.Bytes), nil
}
