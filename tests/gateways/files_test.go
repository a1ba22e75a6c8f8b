//go:build linux

package gateways

import (
	"context"
	"fmt"
	"net"
	"os"
	"os/exec"
	"path/filepath"
	"regexp"
	"slices"
	"strings"
	"syscall"
	"testing"
	"time"

	"github.com/sonde-probe/sonde/tests/gatewaytest"
	"github.com/sonde-probe/sonde/tests/tier"
)

// pollRules is the pause between two reads of the kernel's rules.
const pollRules = 5 * time.Millisecond

// startNftables creates a network namespace, in which Sonde's command changes the rules. The addresses in the kernel's rules are in
// use.
func startNftables(s *scene) {
	tier.Needs(s.t, "nft", "nsenter")
	namespace := exec.Command("sleep", "infinity")
	namespace.SysProcAttr = &syscall.SysProcAttr{Cloneflags: syscall.CLONE_NEWNET, Pdeathsig: syscall.SIGKILL}
	if err := namespace.Start(); err != nil {
		tier.Lacks(s.t, "a network namespace cannot be made: "+err.Error())
	}
	s.t.Cleanup(func() { _ = namespace.Process.Kill(); _ = namespace.Wait() })
	script := fmt.Sprintf("exec nsenter -t %d -n nft \"$@\"\n", namespace.Process.Pid)
	nft := gatewaytest.WriteFile(s.t, s.dir, "nft", script)
	s.follow(func(ctx context.Context) ([]string, error) {
		time.Sleep(pollRules)
		rules, err := exec.CommandContext(ctx, "sh", nft, "list", "chain", "ip", "sonde", "out").Output()
		return []string{strings.ReplaceAll(string(rules), " . ", ":")}, err
	})
}

// startHosts follows the hosts file.
func startHosts(s *scene) {
	s.follow(func(context.Context) ([]string, error) {
		time.Sleep(pollRules)
		text, err := os.ReadFile(filepath.Join(s.dir, "hosts"))
		return []string{strings.ReplaceAll(string(text), " web.internal", ":")}, err
	})
}

// The hosts file has the members in rotation, keepalived accepts the configuration of the page, and its script succeeds as long as
// the group is ready.
func TestFilesForOthers(t *testing.T) {
	parallel(t)
	tier.Needs(t, "keepalived")
	page := filepath.Join(pages, "files.md")
	hosts := kind{name: "a file of hosts", targets: "nginx.md", page: "files.md", block: "sonde.hosts", start: startHosts}
	withState := func(hcl string) string {
		path := regexp.MustCompile(`".*/hosts"`).FindString(hcl)
		block := gatewaytest.CodeBlock(t, page, "hcl", `"/run/sonde-web"`)
		return withoutPanic(hcl) + "\n" + strings.Replace(block, `"/run/sonde-web"`, strings.Replace(path, "/hosts", "/state", 1), 1)
	}
	play(t, hosts, sonde.build(t), withState, func(s *scene) {
		config := s.adapt(gatewaytest.CodeBlock(t, page, "keepalived", "vrrp_script"))
		testKeepalived(s, config)
		script := strings.Fields(regexp.MustCompile(`script "(.*)"`).FindStringSubmatch(config)[1])
		succeeds := func() bool { return exec.Command(script[0], script[1:]...).Run() == nil }
		until(t, "the script to succeed", succeeds)
		s.takeOut()
		if !succeeds() {
			t.Error("the script fails while the group is ready")
		}
		for _, b := range s.backends[1:] {
			b.set("ready=503")
		}
		until(t, "the script to fail", func() bool { return !succeeds() })
	})
}

// testKeepalived has keepalived check a configuration, and one with a mistake. Keepalived checks the interfaces of this machine.
func testKeepalived(s *scene, config string) {
	s.t.Helper()
	all, err := net.Interfaces()
	if err != nil {
		s.t.Fatal(err)
	}
	at := slices.IndexFunc(all, func(i net.Interface) bool {
		return i.Flags&(net.FlagLoopback|net.FlagMulticast) == net.FlagMulticast
	})
	if at < 0 {
		tier.Lacks(s.t, "this machine has no interface with multicast, which keepalived needs")
	}
	config = strings.Replace(config, "eth0", all[at].Name, 1)
	for text, valid := range map[string]bool{config: true, strings.Replace(config, "priority", "prority", 1): false} {
		file := gatewaytest.WriteFile(s.t, s.dir, "keepalived.conf", text)
		if out, err := exec.Command("keepalived", "--config-test", "-f", file).CombinedOutput(); (err == nil) != valid {
			s.t.Errorf("keepalived: %v, %s\n%s", err, out, text)
		}
	}
}
