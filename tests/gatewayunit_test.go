package tests

import (
	"os"
	"os/exec"
	"path/filepath"
	"regexp"
	"slices"
	"strings"
	"testing"

	"github.com/sonde-probe/sonde/tests/tier"
)

// dropIns returns the additions to the unit of the packages on the page of a gateway, under a separate heading.
func dropIns(t *testing.T, page string) (all []string) {
	t.Helper()
	_, section, ok := strings.Cut(readText(t, page), "\n## With the packaged service\n")
	if !ok {
		t.Fatalf("%s does not say what the packaged service needs", page)
	}
	for _, b := range blocksOf(section) {
		if b.lang == "ini" && !strings.Contains(b.before, "systemctl edit nginx") { // a drop-in for another unit
			all = append(all, strings.Join(b.lines, "\n")+"\n")
		}
	}
	return all
}

// pagesOfOutputs are the pages of outputs that write files, connect to sockets or run commands.
var pagesOfOutputs = []string{"haproxy", "nginx", "varnish", "files", "envoy"}

func TestWhatPagesOfGatewaysAddToTheUnitIsValid(t *testing.T) {
	tier.Needs(t, "systemd-analyze")
	for _, page := range pagesOfOutputs {
		for _, dropIn := range dropIns(t, "../docs/gateways/"+page+".md") {
			unit := filepath.Join(t.TempDir(), "sonde.service")
			text := strings.ReplaceAll(readText(t, "../dist/systemd/sonde.service"), "/usr/bin/sonde", "/bin/sh") // not installed here
			writeText(t, unit, text)
			if err := os.Mkdir(unit+".d", 0o755); err != nil {
				t.Fatal(err)
			}
			writeText(t, unit+".d/override.conf", dropIn)
			if out, err := exec.Command("systemd-analyze", "verify", "--man=no", unit).CombinedOutput(); err != nil || strings.Contains(string(out), "sonde.service") {
				t.Errorf("%s: systemd-analyze verify: %v\n%s%s", page, err, dropIn, out)
			}
			if out, err := exec.Command("systemd-analyze", "security", "--offline=true", "--threshold=25", unit).CombinedOutput(); err != nil {
				t.Errorf("%s: %v\n%s%s", page, err, dropIn, out)
			}
		}
	}
}

// The packaged service's user can write to every path that a page tells it to use.
func TestThePackagedServiceCanWriteTheFilesOfGateways(t *testing.T) {
	for page, paths := range map[string][]string{
		"nginx": {"/var/lib/sonde/upstream.conf"}, "varnish": {"/run/sonde/varnish"}, "files": {"/run/sonde/nft", "/run/sonde/web", "/run/sonde-files"},
		"envoy": {"/run/sonde-eds"},
	} {
		text := readText(t, "../docs/gateways/"+page+".md")
		unit := readText(t, "../dist/systemd/sonde.service") + strings.Join(dropIns(t, "../docs/gateways/"+page+".md"), "")
		for _, path := range paths {
			if !strings.Contains(text, path) {
				t.Errorf("the page %s does not name %s", page, path)
			}
			if !slices.ContainsFunc(writable(unit), func(dir string) bool { return path == dir || strings.HasPrefix(path, dir+"/") }) {
				t.Errorf("the page %s names %s, where the packaged service cannot write", page, path)
			}
		}
	}
}

// writable returns the directories that a unit lets its user write to.
func writable(unit string) (dirs []string) {
	for _, m := range regexp.MustCompile(`(?m)^(RuntimeDirectory|StateDirectory|ReadWritePaths)=-?(\S+)$`).FindAllStringSubmatch(unit, -1) {
		dirs = append(dirs, map[string]string{"RuntimeDirectory": "/run/", "StateDirectory": "/var/lib/"}[m[1]]+m[2])
	}
	return dirs
}

// nft succeeds with the page's additions, and only with them.
func TestTheUnitLetsNftChangeRules(t *testing.T) {
	tier.Needs(t, "unshare", "setpriv", "nft")
	if os.Getuid() != 0 {
		t.Skip("not root: neither another user nor a network namespace is permitted")
	}
	if err := exec.Command("unshare", "--net", "true").Run(); err != nil {
		t.Skip("this machine permits no network namespace")
	}
	unit := readText(t, "../dist/systemd/sonde.service")
	with := unit + strings.Join(dropIns(t, "../docs/gateways/files.md"), "")
	for name, c := range map[string]struct {
		unit string
		want bool
	}{"the unit": {unit, false}, "with the drop-in": {with, true}} {
		bounding, ambient := "-all"+capabilities(c.unit, "CapabilityBoundingSet"), "-all"+capabilities(c.unit, "AmbientCapabilities")
		nft := exec.Command("unshare", "--net", "setpriv", "--reuid=65534", "--regid=65534", "--clear-groups", "--no-new-privs",
			"--inh-caps="+ambient, "--ambient-caps="+ambient, "--bounding-set="+bounding, "nft", "-f", "-")
		nft.Stdin = strings.NewReader("table ip sonde\ndelete table ip sonde\ntable ip sonde {\n}\n")
		if out, err := nft.CombinedOutput(); err == nil != c.want {
			t.Errorf("%s: %v\n%s", name, err, out)
		}
	}
}

// capabilities returns the capabilities that a setting of a unit adds, in the syntax of setpriv.
func capabilities(unit, setting string) (all string) {
	for _, m := range regexp.MustCompile(`(?m)^`+setting+`=CAP_(\S+)$`).FindAllStringSubmatch(unit, -1) {
		all += ",+" + strings.ToLower(m[1])
	}
	return all
}

// writeText writes a file.
func writeText(t *testing.T, path, text string) {
	t.Helper()
	if err := os.WriteFile(path, []byte(text), 0o644); err != nil {
		t.Fatal(err)
	}
}
