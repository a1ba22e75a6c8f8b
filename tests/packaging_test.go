package tests

import (
	"debug/buildinfo"
	"encoding/json"
	"errors"
	"net/http/httptest"
	"os"
	"os/exec"
	"regexp"
	"runtime/debug"
	"slices"
	"strings"
	"testing"

	"github.com/prometheus/client_golang/prometheus"

	"github.com/sonde-probe/sonde/api"
	"github.com/sonde-probe/sonde/api/metrics"
	"github.com/sonde-probe/sonde/tests/program"
	"github.com/sonde-probe/sonde/tests/tier"
	"github.com/sonde-probe/sonde/wasmhost/stats"
)

const (
	alertRules = "../dist/prometheus/sonde.rules.yml"
	dashboard  = "../dist/prometheus/grafana.json"
)

func TestMetricsFollowTheRulesOfPrometheus(t *testing.T) {
	scrape := httptest.NewRecorder()
	metrics.Handler(metrics.Config{
		Engine:     engineOf(t),
		Plugins:    func() []stats.Plugin { return []stats.Plugin{{Name: "grpc"}} },
		LogDropped: func() uint64 { return 0 },
		State:      func() metrics.State { return metrics.State{} },
		Shown:      api.Config{LastReload: func() api.Reload { return api.Reload{} }},
	}).ServeHTTP(scrape, httptest.NewRequest("GET", "/metrics", nil))
	if !strings.Contains(scrape.Body.String(), `sonde_target_in_trouble{target="worker"} 1`) {
		t.Fatalf("the scrape has status %d:\n%s", scrape.Code, scrape.Body)
	}
	tier.Needs(t, "promtool")
	c := exec.Command("promtool", "check", "metrics")
	c.Stdin = scrape.Body
	if out, err := c.CombinedOutput(); err != nil {
		t.Errorf("promtool check metrics: %v\n%s", err, out)
	}
}

func TestRulesForPrometheusAreValid(t *testing.T) {
	tier.Needs(t, "promtool")
	if out, err := exec.Command("promtool", "test", "rules", "testdata/alerts.yml").CombinedOutput(); err != nil {
		t.Errorf("%v\n%s", err, out)
	}
	panels := "groups:\n- name: panels\n  rules:\n"
	for _, expr := range expressions(t) {
		panels += "  - {record: panel, expr: " + string(quote(t, plainExpression(expr))) + ", labels: {n: " + string(quote(t, expr)) + "}}\n"
	}
	path := t.TempDir() + "/panels.yml"
	if err := os.WriteFile(path, []byte(panels), 0o644); err != nil {
		t.Fatal(err)
	}
	if out, err := exec.Command("promtool", "check", "rules", alertRules, path).CombinedOutput(); err != nil {
		t.Errorf("%v\n%s", err, out)
	}
}

func quote(t *testing.T, s string) []byte {
	t.Helper()
	text, err := json.Marshal(s)
	if err != nil {
		t.Fatal(err)
	}
	return text
}

// expressions returns the queries of the dashboard's panels.
func expressions(t *testing.T) (all []string) {
	t.Helper()
	var d struct {
		Panels []struct {
			Targets []struct{ Expr string }
		}
	}
	if err := json.Unmarshal([]byte(readText(t, dashboard)), &d); err != nil {
		t.Fatal(err)
	}
	for _, p := range d.Panels {
		for _, target := range p.Targets {
			all = append(all, target.Expr)
		}
	}
	if len(all) == 0 {
		t.Fatal("the dashboard has no queries")
	}
	return all
}

// plainExpression returns a query with values for Grafana's variables.
func plainExpression(expr string) string {
	return strings.NewReplacer("$__rate_interval", "5m", "$job", "sonde", "$instance", ".*").Replace(expr)
}

func TestRulesAndDashboardUseMetricsThatExist(t *testing.T) {
	exported := exportedMetrics(t)
	used := regexp.MustCompile(`\b(?:sonde|prober)_[a-z0-9_]+\b`)
	recorded := regexp.MustCompile(`(?m)record: (\S+)`)
	rules := recorded.ReplaceAllString(readText(t, alertRules), "")
	for _, name := range used.FindAllString(rules+strings.Join(expressions(t), "\n"), -1) {
		base := regexp.MustCompile(`_(bucket|sum|count)$`).ReplaceAllString(name, "")
		if !slices.Contains(exported, name) && !slices.Contains(exported, base) {
			t.Errorf("no engine exports %s", name)
		}
	}
}

// exportedMetrics returns the names of all metrics that the engine can export.
func exportedMetrics(t *testing.T) (names []string) {
	t.Helper()
	descs := make(chan *prometheus.Desc, 1000)
	metrics.New(metrics.Config{}).Describe(descs)
	close(descs)
	for d := range descs {
		name := regexp.MustCompile(`fqName: "([^"]+)"`).FindStringSubmatch(d.String())
		names = append(names, name[1])
	}
	if len(names) == 0 {
		t.Fatal("there are no metrics")
	}
	return names
}

// fleetDropIn returns the file name under which the package sonde-fleet installs its drop-in for sonde.service.
func fleetDropIn(t *testing.T) string {
	t.Helper()
	found := regexp.MustCompile(`dst: /usr/lib/systemd/system/sonde\.service\.d/(\S+\.conf),`).FindStringSubmatch(readText(t, "../dist/nfpm-fleet.yaml"))
	if found == nil {
		t.Fatal("nfpm-fleet.yaml installs no drop-in for sonde.service")
	}
	return found[1]
}

// systemd applies drop-ins in the order of their file names, regardless of their folders.
func TestOperatorsOverrideTheDropInOfFleets(t *testing.T) {
	if name := fleetDropIn(t); name >= "override.conf" {
		t.Errorf("%s comes after override.conf, which systemctl edit writes: it would take away an operator's command line", name)
	}
}

func TestTheUnitOfSystemdIsValid(t *testing.T) {
	tier.Needs(t, "systemd-analyze")
	// The program is not installed where the tests run.
	unit := strings.ReplaceAll(readText(t, "../dist/systemd/sonde.service"), "/usr/bin/sonde", "/bin/sh")
	path := t.TempDir() + "/sonde.service"
	if err := os.WriteFile(path, []byte(unit), 0o644); err != nil {
		t.Fatal(err)
	}
	if out, err := exec.Command("systemd-analyze", "verify", "--man=no", path).CombinedOutput(); err != nil || strings.Contains(string(out), "sonde.service") {
		t.Errorf("systemd-analyze verify: %v\n%s", err, out)
	}
	if err := os.Mkdir(path+".d", 0o755); err != nil {
		t.Fatal(err)
	}
	fleet := strings.ReplaceAll(readText(t, "../dist/systemd/fleet.conf"), "/usr/bin/sonde-fleet", "/bin/sh")
	if err := os.WriteFile(path+".d/"+fleetDropIn(t), []byte(fleet), 0o644); err != nil {
		t.Fatal(err)
	}
	if out, err := exec.Command("systemd-analyze", "verify", "--man=no", path).CombinedOutput(); err != nil || strings.Contains(string(out), "sonde.service") {
		t.Errorf("systemd-analyze verify, as the package sonde-fleet has it run: %v\n%s", err, out)
	}
	if out, err := exec.Command("systemd-analyze", "security", "--offline=true", "--threshold=25", path).CombinedOutput(); err != nil {
		t.Errorf("the unit is less hardened than before: %v\n%s", err, out)
	}
}

// packageSystem is a folder that stands in for a system with systemd and the service when package scripts run.
type packageSystem struct {
	t     *testing.T
	dir   string
	paths *strings.Replacer // maps paths of the system to those below the folder
}

// newPackageSystem returns a system with the program sonde at a path.
func newPackageSystem(t *testing.T, sonde string) packageSystem {
	t.Helper()
	s := packageSystem{t: t, dir: t.TempDir()}
	s.paths = strings.NewReplacer("/usr/bin/sonde", sonde, "/etc/sonde", s.dir+"/etc", "/run/systemd/system", s.dir+"/run",
		"/usr/lib/systemd/system", s.dir+"/units", "/var/lib/sonde", s.dir+"/state", "/var/cache/sonde", s.dir+"/cache")
	for _, dir := range []string{"/etc", "/run", "/bin", "/units/sonde.service.d"} {
		if err := os.MkdirAll(s.dir+dir, 0o755); err != nil {
			t.Fatal(err)
		}
	}
	for _, program := range []string{"systemctl", "systemd-sysusers", "install"} {
		s.write("/bin/"+program, "#!/bin/sh\necho "+program+" \"$@\" >>"+s.dir+"/calls\n", 0o755)
	}
	s.write("/calls", "", 0o644)
	return s
}

func (s packageSystem) write(path, text string, mode os.FileMode) {
	s.t.Helper()
	if err := os.WriteFile(s.dir+path, []byte(text), mode); err != nil {
		s.t.Fatal(err)
	}
}

// run runs a script of dist/scripts like a package manager, and returns its output.
func (s packageSystem) run(script string, args ...string) string {
	s.t.Helper()
	text := s.paths.Replace(readText(s.t, "../dist/scripts/"+script))
	c := exec.Command("/bin/sh", append([]string{"-c", text, script}, args...)...)
	c.Env = []string{"PATH=" + s.dir + "/bin"}
	out, err := c.CombinedOutput()
	if err != nil {
		s.t.Fatalf("%s %v: %v\n%s", script, args, err, out)
	}
	return string(out)
}

// restarts returns how many times the scripts have called systemctl try-restart for the service.
func (s packageSystem) restarts() int {
	s.t.Helper()
	return strings.Count(readText(s.t, s.dir+"/calls"), "systemctl try-restart sonde.service\n")
}

// installFleet installs the drop-in of the package sonde-fleet at its place.
func (s packageSystem) installFleet() {
	s.write("/units/sonde.service.d/"+fleetDropIn(s.t), readText(s.t, "../dist/systemd/fleet.conf"), 0o644)
}

// Data that a purge left behind might have secrets: the accepted configuration includes the files that it reads.
func TestAPurgeRemovesWhatTheEngineHasKept(t *testing.T) {
	for _, isBroken := range []bool{false, true} {
		s := newPackageSystem(t, "/usr/bin/sonde")
		if isBroken {
			s.write("/bin/systemctl", "#!/bin/sh\nexit 1\n", 0o755)
		}
		if err := os.Symlink("/bin/rm", s.dir+"/bin/rm"); err != nil {
			t.Fatal(err)
		}
		for _, dir := range []string{"/state", "/cache"} {
			if err := os.MkdirAll(s.dir+dir, 0o755); err != nil {
				t.Fatal(err)
			}
			s.write(dir+"/sonde.state.accepted", "secret", 0o600)
		}
		s.run("postremove", "remove")
		readText(t, s.dir+"/state/sonde.state.accepted")
		s.run("postremove", "purge")
		for _, dir := range []string{"/state", "/cache"} {
			if _, err := os.Stat(s.dir + dir); !errors.Is(err, os.ErrNotExist) {
				t.Errorf("%s is left, systemctl is broken: %v", dir, isBroken)
			}
		}
	}
}

// Each restart hands over all shards.
func TestAnUpgradeOfThePackagesRestartsTheServiceOnce(t *testing.T) {
	type script struct{ name, arg string }
	for name, upgrade := range map[string]struct {
		isFleet bool
		scripts []script // in the order in which the package manager runs them
	}{
		"deb of sonde": {false, []script{{"postremove", "upgrade"}, {"postinstall", "configure"}}},
		"rpm of sonde": {false, []script{{"postinstall", "2"}, {"postremove", "1"}}},
		"deb of both":  {true, []script{{"postremove", "upgrade"}, {"fleet-postremove", "upgrade"}, {"postinstall", "configure"}, {"fleet-postinstall", "configure"}}},
		"rpm of both":  {true, []script{{"postinstall", "2"}, {"fleet-postinstall", "2"}, {"fleet-postremove", "1"}, {"postremove", "1"}}},
	} {
		t.Run(name, func(t *testing.T) {
			s := newPackageSystem(t, "/bin/true")
			if upgrade.isFleet {
				s.installFleet()
			}
			for _, script := range upgrade.scripts {
				s.run(script.name, script.arg)
			}
			if n := s.restarts(); n != 1 {
				t.Errorf("the service was restarted %d times:\n%s", n, readText(t, s.dir+"/calls"))
			}
		})
	}
}

func TestTheServiceGoesOnWithoutThePackageOfFleetsIfSondeRefusesItsFiles(t *testing.T) {
	tier.CI(t)
	sonde := program.Build(t, program.Sonde)
	const shared = "cluster { endpoints = [\"http://127.0.0.1:2379\"] }\n"
	for name, removal := range map[string]struct {
		arg, config string
		restarts    int
		isTold      bool
	}{
		"deb, files for sonde":       {"remove", rest, 1, false},
		"rpm, files for sonde":       {"0", rest, 1, false},
		"deb, files of a cluster":    {"remove", shared + rest, 0, true},
		"rpm, files of a cluster":    {"0", shared + rest, 0, true},
		"deb, purged once it is off": {"purge", rest, 0, false},
	} {
		t.Run(name, func(t *testing.T) {
			s := newPackageSystem(t, sonde)
			s.write("/etc/sonde.hcl", removal.config, 0o644)
			told := s.run("fleet-postremove", removal.arg)
			if n := s.restarts(); n != removal.restarts {
				t.Errorf("the service was restarted %d times", n)
			}
			if strings.Contains(told, "sonde refuses") != removal.isTold {
				t.Errorf("the administrator is told: %q", told)
			}
		})
	}
}

// curl -k accepts them. Only package main can have such directives, and no other package of the module has them.
func TestProgramsTakeTheCertificatesOfAppliances(t *testing.T) {
	const setting = "x509negativeserial=1"
	info, err := buildinfo.ReadFile(program.Build(t, program.Sonde))
	if err != nil {
		t.Fatal(err)
	}
	if !slices.ContainsFunc(info.Settings, func(s debug.BuildSetting) bool {
		return s.Key == "DefaultGODEBUG" && strings.Contains(s.Value, setting)
	}) {
		t.Errorf("sonde refuses them: %v", info.Settings)
	}
	for _, file := range []string{"../cmd/engine/fleet/main.go", "../examples/wasm-probes/mysql/main.go"} {
		if head, _, _ := strings.Cut(readText(t, file), "\npackage main"); !strings.Contains(head, "\n//go:debug "+setting+"\n") {
			t.Errorf("%s refuses them", file)
		}
	}
}
