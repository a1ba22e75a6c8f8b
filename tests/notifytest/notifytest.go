// Package notifytest creates the senders of notifications for tests.
package notifytest

import (
	"strings"
	"testing"

	"github.com/sonde-probe/sonde/notify"
)

// Sensitive is a text that the senders of SenderOf must not show: they replace it by "(sensitive)".
const Sensitive = "hunter22hunter22"

// Output is the configuration of an output of notify.
type Output interface {
	Check() error
	Fill(spec *notify.Spec)
}

// SenderOf returns the sender for the first receiver of an output, and the receiver's name. The test fails if the configuration is
// invalid.
func SenderOf(t testing.TB, output Output) (sender notify.Sender, receiver string) {
	t.Helper()
	if err := output.Check(); err != nil {
		t.Fatal(err)
	}
	var spec notify.Spec
	output.Fill(&spec)
	to := spec.Receivers[0]
	sender, err := to.New(func(text string) string { return strings.ReplaceAll(text, Sensitive, "(sensitive)") })
	if err != nil {
		t.Fatal(err)
	}
	return sender, to.Name
}
