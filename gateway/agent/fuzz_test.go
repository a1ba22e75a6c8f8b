package agent

import (
	"net"
	"net/netip"
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
		if err != nil && len(text) > 0 && len(text) < maxName {
			t.Errorf("%q is not read", text)
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
				time.Sleep(restTimeout / 2)
				if _, err := client.Write([]byte("a")); err != nil {
					return
				}
			}
		})
		began := time.Now()
		name, err := readName(server)
		if took := time.Since(began); err != errSlow || took != askTimeout {
			t.Errorf("after %v it is read as %q, %v", took, name, err)
		}
		server.Close()
		writing.Wait()
	})
}

// At the bound the oldest connection of the client that has the most is closed: no client gets the
// places of all.
func TestTheOldestOfMostConnectionsGivesWay(t *testing.T) {
	c := connections{limit: 4, open: map[net.Conn]connection{}}
	open := func(from string) (is func() bool) {
		client, server := net.Pipe()
		t.Cleanup(func() { client.Close() })
		c.add(server, netip.MustParseAddr(from))
		return func() bool { _, is := c.open[server]; return is }
	}
	first := open("10.0.0.1")
	var greedy []func() bool
	for range 5 {
		greedy = append(greedy, open("10.0.0.2"))
	}
	last := open("10.0.0.3")
	if !first() || !last() || greedy[0]() || greedy[1]() || greedy[2]() || !greedy[3]() || !greedy[4]() || len(c.open) != 4 {
		t.Errorf("%d connections are open", len(c.open))
	}
}
