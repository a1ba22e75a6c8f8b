package agent

import (
	"net"
	"strings"
	"sync"
	"testing"
	"testing/synctest"
	"time"
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
		name, err := readName(server)
		line, _, _ := strings.Cut(text, "\n")
		if want := strings.TrimSpace(line); err == nil && name != want {
			t.Errorf("%q is read as %q, want %q", text, name, want)
		}
		if isWhole := strings.Contains(text, "\n") && len(line) < maxName; (err == nil) != isWhole {
			t.Errorf("%q gives %v", text, err)
		}
	})
}

// Who sends a byte now and then has a second in all, and is not answered about a part of a name.
func TestASlowClientHasASecond(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		client, server := net.Pipe()
		var writing sync.WaitGroup
		writing.Go(func() {
			for {
				time.Sleep(askTimeout / 10)
				if _, err := client.Write([]byte("a")); err != nil {
					return
				}
			}
		})
		began := time.Now()
		name, err := readName(server)
		if took := time.Since(began); err != errCut || took != askTimeout {
			t.Errorf("after %v it is read as %q, %v", took, name, err)
		}
		server.Close()
		writing.Wait()
	})
}
