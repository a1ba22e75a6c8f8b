package main

import (
	"os"
	"regexp"
	"strings"

	"github.com/rogpeppe/go-internal/testscript"

	"github.com/sonde-probe/sonde/tests/dockertest"
	"github.com/sonde-probe/sonde/tests/systemdtest"
)

// systemKey is the key of a script's *systemdtest.Manager among its values.
type systemKey struct{}

// busVariable is the variable with the address of the script's systemd bus; it is empty without a systemd.
const busVariable = "DBUS_SYSTEM_BUS_ADDRESS"

func systemOf(ts *testscript.TestScript) *systemdtest.Manager {
	return *ts.Value(systemKey{}).(**systemdtest.Manager)
}

// startSystemd implements systemd. It starts a systemd whose bus the program sonde uses as the system bus. Units can run
// /test/subject and /test/sonde.
func startSystemd(ts *testscript.TestScript, neg bool, args []string) {
	usage(ts, !neg && len(args) == 0, "systemd")
	t := testOf(ts)
	m := systemdtest.Start(t)
	subject, err := dockertest.Subject()
	ts.Check(err)
	sonde, err := os.ReadFile(os.Args[0])
	ts.Check(err)
	m.Install(t, "subject", subject)
	m.Install(t, "sonde", sonde)
	ts.Setenv(busVariable, "unix:path="+m.Bus)
	ts.Setenv("ROOT", m.Root)
	*ts.Value(systemKey{}).(**systemdtest.Manager) = m
}

// makeUnit implements unit NAME SETTING.... It starts a service with settings such as Restart=always.
func makeUnit(ts *testscript.TestScript, neg bool, args []string) {
	usage(ts, !neg && len(args) > 1, "unit NAME SETTING...")
	systemOf(ts).Unit(testOf(ts), args[0], args[1:]...)
}

// runOnSystem implements onsystem COMMAND [ARG...]. It runs a command in the same system as the units, and logs its output.
func runOnSystem(ts *testscript.TestScript, neg bool, args []string) {
	usage(ts, !neg && len(args) > 0, "onsystem COMMAND [ARG...]")
	ts.Logf("%s", systemOf(ts).Run(testOf(ts), args...))
}

// waitOnSystem implements waitsystem REGEXP COMMAND [ARG...]. It runs the command repeatedly until its output matches.
func waitOnSystem(ts *testscript.TestScript, neg bool, args []string) {
	usage(ts, !neg && len(args) > 1, "waitsystem REGEXP COMMAND [ARG...]")
	re, err := regexp.Compile("(?m)" + args[0])
	ts.Check(err)
	output := ""
	defer func() { ts.Logf("last output:\n%s", output) }()
	wait(ts, "the output of "+strings.Join(args[1:], " "), func() bool {
		output = systemOf(ts).Run(testOf(ts), args[1:]...)
		return re.MatchString(output)
	})
}
