package sandbox

import "strings"

// line writes a key and a value in the format of abi.InputTarget.
func line(b *strings.Builder, key, value string) {
	b.WriteString(key)
	b.WriteByte('=')
	b.WriteString(escape(value))
	b.WriteByte('\n')
}

func escape(s string) string { return escapes.Replace(s) }

func unescape(s string) string { return unescapes.Replace(s) }

var (
	escapes   = strings.NewReplacer(`\`, `\\`, "\n", `\n`, "\r", `\r`)
	unescapes = strings.NewReplacer(`\\`, `\`, `\n`, "\n", `\r`, "\r")
)
