package systemd

import (
	"os"
	"path/filepath"
	"regexp"
	"strings"
	"testing"
	"time"

	"github.com/sonde-probe/sonde/restart"
	"github.com/sonde-probe/sonde/tests/drivertest"
	"github.com/sonde-probe/sonde/tests/systemdtest"
	"github.com/sonde-probe/sonde/tests/testsync"
	"github.com/sonde-probe/sonde/tests/tier"
)

// Variables for an engine in a process of another user: the socket of the bus, and the address of its unit.
const engineVariable, addressVariable = "SONDE_TEST_ENGINE", "SONDE_TEST_ADDRESS"

func TestEngineOfAnotherUser(t *testing.T) {
	bus, address := os.Getenv(engineVariable), os.Getenv(addressVariable)
	if bus == "" {
		t.Skip("is run by TestAnEngineOfAnotherUserNeedsARuleOfPolkit")
	}
	w := &world{World: drivertest.New(t), t: t, m: &systemdtest.Manager{Bus: bus}}
	w.HTTP("web", address)
	unit := w.unit("web")
	unit.TerminationGracePeriod = time.Second // the end of the test waits for it
	w.Run(map[string]restart.Unit{"web": unit}, nil)
	first := w.Until("web", "ready", drivertest.IsReady)
	drivertest.Get(t, address, "/fail")
	testsync.Until(t, "restart or refusal", func() bool {
		return another(first)(w.State("web")) || strings.Contains(w.Log.String(), "not restarted")
	})
	t.Log(w.Log.String())
}

func TestAnEngineOfAnotherUserNeedsARuleOfPolkit(t *testing.T) {
	w := newWorld(t)
	tier.Needs(t, "/usr/lib/polkit-1/polkitd", "setpriv")
	_, address := w.service("web")
	text, err := os.ReadFile(os.Args[0])
	if err != nil {
		t.Fatal(err)
	}
	program := w.m.Install(t, "engine", text)
	run := func() (log string, starts int) {
		began := time.Now()
		log = w.m.Run(t, "env", engineVariable+"="+systemBus, addressVariable+"="+address,
			"setpriv", "--reuid=nobody", "--regid=nogroup", "--clear-groups", program, "-test.run=^TestEngineOfAnotherUser$", "-test.v")
		return log, w.m.Starts(t, "web"+suffix, began)
	}
	log, starts := run()
	if starts != 0 || !strings.Contains(log, `user 65534 may not restart web.service`) || !strings.Contains(log, `polkit for the action org.freedesktop.systemd1.manage-units with unit`) {
		t.Errorf("%d starts: %s", starts, log)
	}
	doc, err := os.ReadFile("../../docs/systemd.md")
	if err != nil {
		t.Fatal(err)
	}
	rule := regexp.MustCompile("(?s)polkit.addRule.*?\n}\\);\n").Find(doc)
	rule = []byte(strings.NewReplacer("nginx.service", "web.service", "sonde", "nobody").Replace(string(rule)))
	if err := os.WriteFile(filepath.Join(w.m.Root, "etc/polkit-1/rules.d/sonde.rules"), rule, 0o644); err != nil {
		t.Fatal(err)
	}
	w.m.Run(t, "systemctl", "restart", "polkit.service", "web.service")
	if log, starts = run(); starts != 1 {
		t.Errorf("%d starts with the rule\n%s: %s", starts, rule, log)
	}
}
