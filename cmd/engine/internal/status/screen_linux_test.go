package status

import (
	"fmt"
	"io"
	"net/http"
	"net/http/httptest"
	"os"
	"strings"
	"testing"

	"golang.org/x/sys/unix"

	"github.com/sonde-probe/sonde/api"
)

// openTerminal returns both ends of a terminal with a number of columns. Output that a command writes to tty can be read from
// control.
func openTerminal(t *testing.T, columns uint16) (control, tty *os.File) {
	t.Helper()
	control, err := os.OpenFile("/dev/ptmx", os.O_RDWR, 0)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { control.Close() })
	if err := unix.IoctlSetPointerInt(int(control.Fd()), unix.TIOCSPTLCK, 0); err != nil {
		t.Fatal(err)
	}
	number, err := unix.IoctlGetInt(int(control.Fd()), unix.TIOCGPTN)
	if err != nil {
		t.Fatal(err)
	}
	tty, err = os.OpenFile(fmt.Sprintf("/dev/pts/%d", number), os.O_RDWR|unix.O_NOCTTY, 0)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { tty.Close() })
	if err := unix.IoctlSetWinsize(int(tty.Fd()), unix.TIOCSWINSZ, &unix.Winsize{Row: 24, Col: columns}); err != nil {
		t.Fatal(err)
	}
	return control, tty
}

func TestATerminalGetsColoursAndLinesThatFit(t *testing.T) {
	server := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		w.Header().Set(api.HeaderEngine, "sonde")
		if r.URL.Path == "/v1/targets/shop/db" {
			io.WriteString(w, `{"name": "shop/db", "state": "not_ready", "inTrouble": true, "probes": [{"id": "shop/db:readiness", "target": "shop/db",
				"verdict": "failing", "decided": true, "result": {"outcome": "failure", "reason": "tcp.refused", "detail": "dial tcp 127.0.0.1:21049: connect: connection refused"}}]}`)
			return
		}
		io.WriteString(w, `{}`)
	}))
	defer server.Close()
	red := "shop/db  \x1b[31mnot ready\x1b[0m  readiness  \x1b[31mfailing\x1b[0m\r\n" +
		"    \x1b[31mtcp.refused: dial tcp 127.0.0.1:21049: connect:\x1b[0m\r\n    \x1b[31mconnection refused\x1b[0m\r\n"
	for _, c := range []struct{ name, value, want string }{
		{"TERM", "xterm", red},
		{"TERM", "dumb", "shop/db  not ready  readiness  failing\r\n"},
		{"NO_COLOR", "1", "shop/db  not ready  readiness  failing\r\n"},
	} {
		t.Run(c.name+"="+c.value, func(t *testing.T) {
			t.Setenv("TERM", "xterm")
			t.Setenv("NO_COLOR", "")
			t.Setenv(c.name, c.value)
			control, tty := openTerminal(t, 60)
			read := make(chan string)
			go func() {
				var text strings.Builder
				_, _ = io.Copy(&text, control) // returns an error when the other end is closed
				read <- text.String()
			}()
			command := statusCommand()
			command.SetOut(tty)
			command.SetArgs([]string{"shop/db", "--address", server.URL})
			err := command.Execute()
			tty.Close()
			if got := <-read; err != nil || !strings.Contains(got, c.want) {
				t.Errorf("%v; the terminal shows\n%q, want\n%q", err, got, c.want)
			}
		})
	}
}
