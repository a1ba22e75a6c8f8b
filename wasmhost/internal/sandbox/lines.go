package sandbox

import (
	"fmt"
	"strings"
)

// line writes a key and a value as abi.InputTarget describes.
func line(b *strings.Builder, key, value string) {
	fmt.Fprintf(b, "%s=%s\n", key, escape(value))
}

func escape(s string) string {
	return strings.NewReplacer(`\`, `\\`, "\n", `\n`, "\r", `\r`).Replace(s)
}

func unescape(s string) string {
	return strings.NewReplacer(`\\`, `\`, `\n`, "\n", `\r`, "\r").Replace(s)
}
