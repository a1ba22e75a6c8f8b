package config

import (
	"fmt"
	"strconv"
	"strings"

	"github.com/hashicorp/hcl/v2/hclsyntax"

	"github.com/sonde-probe/sonde/internal/bytesize"
	"github.com/sonde-probe/sonde/internal/redact"
	"github.com/sonde-probe/sonde/probe"
)

// maxSettings bounds the text of shown, in bytes.
const maxSettings = 4 << 10

// shown returns the arguments of a block as text, for people: probe.Probe.Settings.
// Those without a value in the text are left out. What is sensitive is replaced, and what
// has a name that says that it is secret.
func (d *decodedBlock) shown(s *Schema) string {
	var out strings.Builder
	d.show(&out, s, "")
	return probe.CleanText(strings.TrimSuffix(out.String(), "\n"), maxSettings)
}

// show writes a block.
func (d *decodedBlock) show(out *strings.Builder, s *Schema, indent string) {
	for i := range s.Fields {
		f := &s.Fields[i]
		source, given := d.sources[f.Name]
		value := d.values[f.Name]
		if !given || value == nil {
			continue
		}
		if inner := d.blocks[f.Name]; inner != nil {
			fmt.Fprintf(out, "%s%s {\n", indent, f.Name)
			inner.show(out, f.Block, indent+"  ")
			fmt.Fprintf(out, "%s}\n", indent)
			continue
		}
		text := redact.Mark
		if !source.secret && !isSecretName(f.Name) {
			text = inHCL(d.sized(f.Name), true)
		}
		fmt.Fprintf(out, "%s%s = %s\n", indent, f.Name, text)
	}
}

// sized returns the value of an argument; a number of bytes as a size.
func (d *decodedBlock) sized(name string) any {
	if n, ok := d.values[name].(int64); ok && d.sources[name].isSize {
		return bytesize.Size(n)
	}
	return d.values[name]
}

// inHCL returns a value as it is written in a configuration, perhaps without passwords and what has the name of a secret.
func inHCL(value any, hide bool) string {
	switch v := value.(type) {
	case string:
		if hide {
			v = passwordInURL.ReplaceAllString(v, "://"+redact.Mark+"@")
		}
		return strconv.Quote(v)
	case fmt.Stringer: // such as a duration
		return strconv.Quote(v.String())
	case []string:
		texts := make([]string, len(v))
		for i, s := range v {
			texts[i] = inHCL(s, hide)
		}
		return "[" + strings.Join(texts, ", ") + "]"
	case map[string]string:
		return mapInHCL(v, hide)
	case map[string][]string:
		return mapInHCL(v, hide)
	case map[string]uint16:
		return mapInHCL(v, hide)
	}
	return fmt.Sprint(value)
}

func mapInHCL[V any](m map[string]V, hide bool) string {
	var entries []string
	for _, name := range names(m) {
		text := redact.Mark
		if !hide || !isSecretName(name) {
			text = inHCL(m[name], hide)
		}
		if !hclsyntax.ValidIdentifier(name) {
			name = strconv.Quote(name)
		}
		entries = append(entries, name+" = "+text)
	}
	return "{ " + strings.Join(entries, ", ") + " }"
}
