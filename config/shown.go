package config

import (
	"fmt"
	"maps"
	"slices"
	"strconv"
	"strings"
	"time"

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
			text = shownValue(f.Type, value)
		}
		fmt.Fprintf(out, "%s%s = %s\n", indent, f.Name, text)
	}
}

// shownValue returns a value as it is written in a configuration.
func shownValue(t Type, value any) string {
	switch v := value.(type) {
	case string:
		return strconv.Quote(passwordInURL.ReplaceAllString(v, "://"+redact.Mark+"@"))
	case time.Duration:
		return strconv.Quote(v.String())
	case int64:
		if t == Size {
			return strconv.Quote(bytesize.Size(v).String())
		}
	case []string:
		texts := make([]string, len(v))
		for i, s := range v {
			texts[i] = shownValue(String, s)
		}
		return "[" + strings.Join(texts, ", ") + "]"
	case map[string]string:
		return shownMap(v, String)
	case map[string][]string:
		return shownMap(v, Strings)
	}
	return fmt.Sprint(value)
}

func shownMap[V any](m map[string]V, t Type) string {
	var entries []string
	for _, name := range slices.Sorted(maps.Keys(m)) {
		text := redact.Mark
		if !isSecretName(name) {
			text = shownValue(t, m[name])
		}
		entries = append(entries, name+" = "+text)
	}
	return "{ " + strings.Join(entries, ", ") + " }"
}
