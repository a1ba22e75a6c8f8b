package sandbox

import (
	"context"
	"errors"
	"log/slog"
	"net"
	"os"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/sonde-probe/sonde/wasmhost/abi"
	"github.com/sonde-probe/sonde/wasmhost/internal/module"
)

// No connection waits after the call is over, in whatever order a connection is added, its deadline
// is set, and the call ends.
func TestNoConnectionWaitsAfterTheCallIsOver(t *testing.T) {
	ctx, cancel := context.WithCancel(t.Context())
	l := &lifetime{ctx: ctx}
	l.begin()
	d := &descriptors{life: l, next: abi.FirstFD}
	early, late := new(socket), new(socket)
	var peers [2]net.Conn
	early.conn, peers[0] = net.Pipe()
	late.conn, peers[1] = net.Pipe()
	defer d.closeAll()
	d.add(early)
	cancel()
	l.interrupt()
	defer l.cancelStop()
	d.add(late)
	d.interrupt()
	for name, s := range map[string]*socket{"added before": early, "added after": late} {
		d.setDeadline(func() error { return s.conn.SetReadDeadline(time.Time{}) })
		if _, err := s.conn.Read(make([]byte, 1)); !errors.Is(err, os.ErrDeadlineExceeded) {
			t.Errorf("%s the end: %v", name, err)
		}
	}
	if got, ok := d.get(abi.FirstFD + 1); !ok || got != late {
		t.Errorf("descriptor %d is %v", abi.FirstFD+1, got)
	}
}

func TestArgumentsAreInsideOfTheMemoryAndPaidFor(t *testing.T) {
	i := newInstance(t)
	for name, test := range map[string]struct {
		at, length uint32
		want       abi.Errno
		detail     string
	}{
		"inside":        {module.PageSize - 64, 64, abi.OK, ""},
		"at the end":    {module.PageSize, 0, abi.OK, ""},
		"outside":       {module.PageSize - 63, 64, abi.EFAULT, "64 bytes at address 65473 are outside of the memory"},
		"too long":      {0, 65, abi.E2BIG, "text of 65 bytes is too long, at most 64 are allowed"},
		"around to 0":   {1<<32 - 1, 2, abi.EFAULT, "2 bytes at address 4294967295 are outside of the memory"},
		"of huge claim": {0, 1<<32 - 1, abi.E2BIG, "text of 4294967295 bytes is too long, at most 64 are allowed"},
	} {
		c := &cpu{}
		c.grantFirst(i.fuel, maxFuel)
		m := memory{Memory: i.module.Memory(), failures: new(failures), cpu: c}
		text, errno := m.text(args{uint64(test.at), uint64(test.length)}, 0, 64)
		if errno != test.want || m.last.Detail != test.detail || errno == abi.OK && len(text) != int(test.length) {
			t.Errorf("%s: %d bytes, %v, %q", name, len(text), errno, m.last.Detail)
		}
		if want := int64(len(text) / copiedPerUnit); c.total() != want {
			t.Errorf("%s: %d units are charged, want %d", name, c.total(), want)
		}
	}
}

// A language runtime that panics writes its lines in many pieces, and may not terminate the last
// line.
func TestALineIsLoggedOnceItHasEnded(t *testing.T) {
	var logged strings.Builder
	drop := func(_ []string, a slog.Attr) slog.Attr {
		if slices.Contains([]string{"text", "target"}, a.Key) {
			return a
		}
		return slog.Attr{}
	}
	c := &cpu{}
	c.grantFirst(newInstance(t).fuel, maxFuel)
	tenant := &Tenant{logger: slog.New(slog.NewTextHandler(&logged, &slog.HandlerOptions{ReplaceAttr: drop}))}
	l := guestLog{cpu: c, tenant: tenant, limit: 2*recordSize + len("panic: out of") + 1, target: "web"}
	for _, piece := range []string{"panic: ", "out of\n\n", "memory", "\nmore\n"} {
		l.output([]byte(piece))
	}
	l.output([]byte("at the end"))
	l.endLine()
	want := `target=web text="panic: out of"` + "\n" + "target=web text=m\n"
	if logged.String() != want || tenant.log.dropped.Load() != 2 {
		t.Errorf("%d records are dropped, logged:\n%s", tenant.log.dropped.Load(), logged.String())
	}
}
