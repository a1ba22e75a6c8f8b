package agent

import (
	"net"
	"strings"
	"testing"
)

// Whatever a client sends, at most one line is read, and the answer about it is one line.
func FuzzNamesAreRead(f *testing.F) {
	for _, text := range []string{"web-1\n", "web/web-1\r\n", "\n", "a\x00b\nc", strings.Repeat("a", maxName), strings.Repeat("a", 256) + "\n"} {
		f.Add(text)
	}
	f.Fuzz(func(t *testing.T, text string) {
		client, server := net.Pipe()
		defer server.Close()
		go func() {
			defer client.Close()
			_, _ = client.Write([]byte(text))
		}()
		name, ok := readName(server)
		line, _, _ := strings.Cut(text, "\n")
		if want := strings.TrimSpace(line); ok && name != want {
			t.Errorf("%q is read as %q, want %q", text, name, want)
		}
		if !ok && len(text) > 0 && len(text) < maxName {
			t.Errorf("%q is not read", text)
		}
	})
}
