package beatprobe_test

import (
	"fmt"
	"net"
	"os"
	"os/exec"
	"strings"
	"testing"

	beatprobe "github.com/sonde-probe/sonde/builtin/beat"
	"github.com/sonde-probe/sonde/tests/testsync"
	"github.com/sonde-probe/sonde/tests/tier"
)

// The shell lines in docs/beats.md send a beat, and its example of a datagram is a valid beat.
func TestTheShellOfTheDocsSendsABeat(t *testing.T) {
	text, err := os.ReadFile("../../docs/beats.md")
	if err != nil {
		t.Fatal(err)
	}
	_, script, found := strings.Cut(string(text), "```sh\n")
	script, _, ended := strings.Cut(script, "```")
	const address = "127.0.0.1/9651"
	if !found || !ended || strings.Count(script, address) != 1 {
		t.Fatalf("docs/beats.md has no lines of shell with %s: %q", address, script)
	}
	tier.Needs(t, "bash", "openssl")
	r := expect(t, map[string]string{"backup": token})
	rc, _ := receiver(t, r)
	run(t, r, rc)
	command := exec.Command("bash", "-ec", strings.Replace(script, address, fmt.Sprintf("127.0.0.1/%d", rc.LocalAddr().(*net.UDPAddr).Port), 1))
	command.Env = append(os.Environ(), "BACKUP_TOKEN="+token)
	if output, err := command.CombinedOutput(); err != nil || len(output) > 0 {
		t.Fatalf("%v: %s", err, output)
	}
	testsync.Until(t, "the beat", func() bool { return r.Stats().UDP == 1 || r.Stats().Denied > 0 })
	if last, _ := r.Last("backup"); last.Report.Status != beatprobe.OK {
		t.Errorf("it has sent %+v, counted %+v", last, r.Stats())
	}
}
