package blackbox

import (
	"math"
	"slices"
	"strconv"
	"strings"
)

// text returns metrics in Prometheus' text format, version 0.0.4.
func text(all []*family) string {
	var b strings.Builder
	for _, f := range all {
		b.WriteString("# HELP " + f.name + " " + f.help + "\n# TYPE " + f.name + " gauge\n")
		lines := make([]string, len(f.series))
		for i, s := range f.series {
			lines[i] = f.name + labels(s.labels) + " " + value(s.value) + "\n"
		}
		slices.Sort(lines)
		b.WriteString(strings.Join(lines, ""))
	}
	return b.String()
}

var labelEscapes = strings.NewReplacer(`\`, `\\`, "\n", `\n`, `"`, `\"`)

// labels returns labels, which are name and value in turn, as text.
func labels(all []string) string {
	if len(all) == 0 {
		return ""
	}
	var parts []string
	for i := 0; i < len(all); i += 2 {
		parts = append(parts, all[i]+`="`+labelEscapes.Replace(strings.ToValidUTF8(all[i+1], "\uFFFD"))+`"`)
	}
	return "{" + strings.Join(parts, ",") + "}"
}

func value(v float64) string {
	switch {
	case math.IsInf(v, 1):
		return "+Inf"
	case math.IsInf(v, -1):
		return "-Inf"
	}
	return strconv.FormatFloat(v, 'g', -1, 64)
}

// indent indents the lines of a text.
func indent(s string) string {
	if s == "" {
		return ""
	}
	return "  " + strings.ReplaceAll(strings.TrimSuffix(s, "\n"), "\n", "\n  ") + "\n"
}

// oneLine returns a text in one line.
func oneLine(s string) string { return strings.Join(strings.Fields(s), " ") }
