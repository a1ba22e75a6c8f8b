package plugindev

import (
	"regexp"
	"strings"
	"testing"

	"github.com/sonde-probe/sonde/wasmhost"
)

// Go's runtime writes each word of a traceback by a call of its own.
func TestWritesToTheLogAreShownAsOne(t *testing.T) {
	l := &callLog{}
	add := func(function string, fd uint64, result int64) {
		l.add(wasmhost.HostCall{Target: "try", Function: function, Args: []uint64{fd, 8, 1, 16}, Result: result})
	}
	add("sonde_v1.dial", 0, 1000)
	add("wasi_snapshot_preview1.fd_write", 1000, 0)
	add("wasi_snapshot_preview1.fd_write", 1000, 0)
	for range 500 {
		add("wasi_snapshot_preview1.fd_write", 2, 0)
	}
	add("wasi_snapshot_preview1.fd_write", 2, 21)
	add("wasi_snapshot_preview1.fd_write", 1, 0)
	var b strings.Builder
	if err := l.write(&b); err != nil {
		t.Fatal(err)
	}
	text := b.String()
	if strings.Count(text, "\n") != 6 || !regexp.MustCompile(`fd_write\(2, 8, 1, 16\) += 0 +took 0s, 500 calls`).MatchString(text) {
		t.Errorf("got\n%s", text)
	}
}
