package webhook

import (
	"testing"

	"github.com/sonde-probe/sonde/notify"
)

// Render returns the body of a request.
func Render(t testing.TB, c Config, n *notify.Notice) []byte {
	t.Helper()
	body, err := parseBody(c.Body)
	if err != nil {
		t.Fatal(err)
	}
	text, err := render(body, n)
	if err != nil {
		t.Fatal(err)
	}
	return text
}
