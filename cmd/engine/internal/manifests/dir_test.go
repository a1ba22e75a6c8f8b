package manifests

import (
	"bytes"
	"fmt"
	"log/slog"
	"net/http"
	"net/http/httptest"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/sonde-probe/sonde/config"
	"github.com/sonde-probe/sonde/engine"
	"github.com/sonde-probe/sonde/kube"
	"github.com/sonde-probe/sonde/probe"
	"github.com/sonde-probe/sonde/restart"
	"github.com/sonde-probe/sonde/restart/process"
	"github.com/sonde-probe/sonde/tests/testsync"
)

// podsAt is a directory of pods under test.
type podsAt struct {
	*Dir
	log bytes.Buffer
	now time.Time
}

func newPodsAt(t *testing.T) *podsAt {
	p := &podsAt{now: time.Now()}
	log := slog.New(slog.NewTextHandler(&p.log, nil))
	p.Dir = &Dir{path: t.TempDir(), reader: reader{handlers: newHandlers(new(grpcPlugin), probe.Mended), log: log}, files: map[string]*file{}}
	return p
}

// write writes a file whose modification time is ago in the past.
func (p *podsAt) write(t *testing.T, name, text string, ago time.Duration) {
	t.Helper()
	name = filepath.Join(p.path, name)
	if err := os.WriteFile(name, []byte(text), 0o644); err != nil {
		t.Fatal(err)
	}
	if err := os.Chtimes(name, p.now, p.now.Add(-ago)); err != nil {
		t.Fatal(err)
	}
}

// refresh calls Refresh and returns the commands that then run, or "-" if nothing has changed.
func (p *podsAt) refresh(t *testing.T) string {
	t.Helper()
	changed, err := p.Refresh(p.now)
	if err != nil {
		t.Fatal(err)
	}
	if !changed {
		return "-"
	}
	var all []string
	for _, one := range p.targets() {
		all = append(all, one.container.Target.Name+"="+one.target.Driver.(process.Config).Command[0])
	}
	return strings.Join(all, " ")
}

func pod(name, command string) string {
	return fmt.Sprintf("{apiVersion: v1, kind: Pod, metadata: {name: %s}, spec: {containers: [{name: c, image: i, command: [%s]}]}}\n", name, command)
}

func TestChangedFilesAreApplied(t *testing.T) {
	p := newPodsAt(t)
	expect := func(what, want string) {
		t.Helper()
		if got := p.refresh(t); got != want {
			t.Errorf("%s: there is %q, want %q", what, got, want)
		}
	}
	expect("empty", "-")
	p.write(t, "b.yaml", pod("b", "one"), time.Hour)
	p.write(t, "a.json", pod("a", "one"), time.Hour)
	p.write(t, "c.txt", pod("c", "one"), time.Hour)
	p.write(t, ".d.yaml", pod("d", "one"), time.Hour)
	expect("added", "default/a/c=one default/b/c=one")
	expect("the same", "-")
	p.write(t, "a.json", pod("a", "two"), time.Minute)
	expect("another time", "default/a/c=two default/b/c=one")
	p.write(t, "a.json", pod("a", "two"), time.Second)
	expect("another time, the same text", "-")
	p.write(t, "a.json", pod("a", "six"), time.Second)
	expect("the same time and length, another text", "default/a/c=six default/b/c=one")
	p.write(t, "a.json", pod("a", "seven")+"---\n"+pod("e", "one"), time.Minute)
	expect("two pods", "default/a/c=seven default/e/c=one default/b/c=one")
	p.write(t, "a.json", "kind: [", 50*time.Second)
	expect("wrong", "-")
	expect("still wrong", "-")
	if n := strings.Count(p.log.String(), "manifest rejected"); n != 1 {
		t.Errorf("the error was logged %d times", n)
	}
	if got := len(p.targets()); got != 3 {
		t.Errorf("an invalid file leaves %d targets, want 3", got)
	}
	if err := os.Remove(filepath.Join(p.path, "a.json")); err != nil {
		t.Fatal(err)
	}
	expect("removed", "default/b/c=one")
}

func TestFilesWithOtherNamesAreLoggedOnce(t *testing.T) {
	p := newPodsAt(t)
	p.write(t, "a.yaml", pod("a", "one"), time.Hour)
	p.write(t, ".hidden", "", time.Hour)
	p.refresh(t)
	if log := p.log.String(); log != "" {
		t.Errorf("the log is %s", log)
	}
	expect := func(want string) {
		t.Helper()
		p.log.Reset()
		p.refresh(t)
		if log := p.log.String(); want == "" && log != "" || !strings.Contains(log, want) || strings.Count(log, "\n") > 1 {
			t.Errorf("the log is %s, want %s", log, want)
		}
	}
	p.write(t, "web.yaml.bak", pod("b", "one"), time.Hour)
	p.write(t, "db", pod("c", "one"), time.Hour)
	expect(`level=WARN msg="files ignored, rename them to *.yaml, *.yml or *.json" directory=` + p.path + ` files="db, web.yaml.bak"`)
	expect("")
	for i := range 20 {
		p.write(t, fmt.Sprintf("more%02d", i), "", time.Hour)
	}
	expect("more01 and 19 more")
	expect("")
}

func TestGatesThatNothingOpensAreLogged(t *testing.T) {
	p := newPodsAt(t)
	p.write(t, "a.yaml", `{apiVersion: v1, kind: Pod, metadata: {name: a}, spec: {readinessGates: [{conditionType: example.com/lb}, {conditionType: b}],
  schedulingGates: [{name: quota}], containers: [{name: a, image: i, command: [sleep]}]}}`, time.Hour)
	p.refresh(t)
	for _, want := range []string{
		`level=WARN msg="readiness gates do not count, probe what sets them" pod=default/a gates="example.com/lb, b"`,
		`level=WARN msg="scheduling gates do not count, the pod is started" pod=default/a gates=quota`,
	} {
		if log := p.log.String(); !strings.Contains(log, want) {
			t.Errorf("the log is %s, want %s", log, want)
		}
	}
}

func TestFirstVersionOfAFileThatIsRejectedRunsNoPods(t *testing.T) {
	p := newPodsAt(t)
	p.write(t, "a.yaml", "kind: [", time.Hour)
	p.refresh(t)
	if log := p.log.String(); !strings.Contains(log, "manifest rejected, running none of its pods") || strings.Contains(log, "last valid version") {
		t.Errorf("the log is %s", log)
	}
	p.write(t, "a.yaml", pod("a", "one"), time.Minute)
	p.refresh(t)
	p.write(t, "a.yaml", "kind: [ ", time.Second)
	p.refresh(t)
	if log := p.log.String(); !strings.Contains(log, "manifest rejected, keeping the pods of its last valid version") {
		t.Errorf("the log is %s", log)
	}
}

func TestCompatibilityReachesTheProbesOfPods(t *testing.T) {
	for compatibility, want := range map[probe.Compatibility]struct {
		agent   string
		outcome probe.Outcome // of a truncated response
	}{probe.Mended: {"sonde-probe", probe.Failure}, probe.Kubelet: {"kube-probe/1.36", probe.Unknown}} {
		agents := make(chan string, 10)
		server := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
			agents <- r.UserAgent()
			w.Header().Set("Content-Length", "100")
			_, _ = w.Write([]byte("short"))
		}))
		defer server.Close()
		_, port, _ := strings.Cut(strings.TrimPrefix(server.URL, "http://"), ":")
		f := Flags{Path: t.TempDir()}
		manifest := "{apiVersion: v1, kind: Pod, metadata: {name: a}, spec: {containers: [{name: c, image: i, command: [x], livenessProbe: {httpGet: {port: " + port + "}}}]}}"
		if err := os.WriteFile(filepath.Join(f.Path, "a.yaml"), []byte(manifest), 0o644); err != nil {
			t.Fatal(err)
		}
		dir, err := f.Open(compatibility, slog.New(slog.DiscardHandler))
		if err != nil {
			t.Fatal(err)
		}
		id := probe.ID{Target: "default/a/c", Kind: probe.Liveness}
		made := dir.Add(&config.Config{Targets: map[string]config.Target{}, Set: probe.Set{}}).Set[id]
		made.Target.Name, made.Rule.Kind, made.Rule.Timeout = id.Target, id.Kind, testsync.Timeout
		if got := engine.Once(t.Context(), made); got.Outcome != want.outcome {
			t.Errorf("K71, compatibility %v: the attempt is %+v, want %v", compatibility, got, want.outcome)
		}
		if agent := <-agents; agent != want.agent {
			t.Errorf("K87, compatibility %v: the agent is %q, want %q", compatibility, agent, want.agent)
		}
	}
}

func TestALinkIsFollowed(t *testing.T) {
	p := newPodsAt(t)
	p.write(t, "one.text", pod("a", "one"), time.Hour)
	p.write(t, "two.text", pod("a", "two"), time.Hour) // of the same length and time
	link := filepath.Join(p.path, "pod.yaml")
	for _, to := range []string{"one", "two"} {
		_ = os.Remove(link)
		if err := os.Symlink(to+".text", link); err != nil {
			t.Skip("there are no links here: ", err)
		}
		if got := p.refresh(t); got != "default/a/c="+to {
			t.Errorf("a link to %s is %q", to, got)
		}
	}
}

func TestAnUnreadableDirectoryKeepsItsPods(t *testing.T) {
	p := newPodsAt(t)
	p.write(t, "a.yaml", pod("a", "one"), time.Hour)
	p.refresh(t)
	elsewhere := p.path
	p.path = filepath.Join(p.path, "none")
	for range 3 {
		if changed, err := p.Refresh(p.now); changed || err == nil {
			t.Errorf("look = %v, %v", changed, err)
		}
	}
	if n := strings.Count(p.log.String(), "pods directory unreadable"); n != 1 || len(p.targets()) != 1 {
		t.Errorf("the error was logged %d times, and %d targets are left", n, len(p.targets()))
	}
	p.path = elsewhere
	if got := p.refresh(t); got != "-" || len(p.targets()) != 1 {
		t.Errorf("when it is back there is %q", got)
	}
}

func TestATooLargeDirectoryIsRejected(t *testing.T) {
	many := newPodsAt(t)
	for i := range maxFiles + 1 {
		many.write(t, fmt.Sprintf("%d.yaml", i), "", time.Hour)
	}
	large := newPodsAt(t)
	for i := range maxBytes/kube.MaxManifestBytes + 1 {
		large.write(t, fmt.Sprintf("%d.yaml", i), "", time.Hour)
		if err := os.Truncate(filepath.Join(large.path, fmt.Sprintf("%d.yaml", i)), kube.MaxManifestBytes); err != nil {
			t.Fatal(err)
		}
	}
	for want, p := range map[string]*podsAt{"has 1001 files, at most 1000 are allowed": many, "bytes, at most 33554432 are allowed": large} {
		if _, err := p.Refresh(p.now); err == nil || !strings.Contains(err.Error(), want) {
			t.Errorf("the error is %v, want %s", err, want)
		}
	}
}

func TestContainersThatCannotRunAsProcessesAreRejected(t *testing.T) {
	for _, test := range []struct{ name, container, want string }{
		{"an image", "image: nginx", `it has no command, and the entrypoint of image \"nginx\" is not known; give it with --entrypoint nginx=PROGRAM`},
		{"a volume", "image: i, command: [x], volumeMounts: [{name: v, mountPath: /v}]", `volume \"v\" is mounted at /v`},
		{"secrets", "image: i, command: [x], envFrom: [{secretRef: {name: s}}], env: [{name: A, valueFrom: {secretKeyRef: {name: s, key: k}}}]",
			"variable A is set by valueFrom; variables are set by envFrom"},
		{"grpc", "image: i, command: [x], livenessProbe: {grpc: {port: 1}}", "livenessProbe: grpc probes need a plugin that this sonde was built without"},
		{"a port that there is not", "image: i, command: [x], readinessProbe: {tcpSocket: {port: http}}", `readinessProbe: port is \"http\"`},
		{"a zero byte", `image: i, command: ["x\0"]`, "NUL byte"},
	} {
		t.Run(test.name, func(t *testing.T) {
			p := newPodsAt(t)
			p.write(t, "a.yaml", "{apiVersion: v1, kind: Pod, metadata: {name: a}, spec: {containers: [{name: c, "+test.container+"}, {name: good, image: i, command: [x]}]}}", time.Hour)
			if got := p.refresh(t); got != "default/a/good=x" {
				t.Errorf("there is %q", got)
			}
			if log := p.log.String(); !strings.Contains(log, `msg="container rejected, neither run nor probed" target=default/a/c error=`) || !strings.Contains(log, test.want) {
				t.Errorf("the log is %s, want %s", log, test.want)
			}
		})
	}
}

// Containers that run elsewhere are probed at the ports of the manifest, except by commands, which would not probe the
// container.
func TestContainersThatCannotRunAsProcessesAreProbed(t *testing.T) {
	p := newPodsAt(t)
	p.write(t, "a.yaml", `{apiVersion: v1, kind: Pod, metadata: {name: a}, spec: {
		initContainers: [{name: init, image: nginx}],
		containers: [{name: c, image: i, command: [x], livenessProbe: {tcpSocket: {port: 80}}, readinessProbe: {exec: {command: ["true"]}}}, {name: d, image: i, command: [x]}]}}`, time.Hour)
	p.Refresh(p.now)
	all := p.Add(&config.Config{Targets: map[string]config.Target{}, Set: probe.Set{}})
	if _, there := all.Set[probe.ID{Target: "default/a/c", Kind: probe.Liveness}]; !there || len(all.Set) != 1 || len(all.Targets) != 1 || all.Targets["default/a/c"].Driver != nil {
		t.Errorf("there is %+v, with the probes %v", all.Targets, all.Set)
	}
	for _, want := range []string{
		`msg="container rejected, neither run nor probed" target=default/a/init error="it has no command`,
		`msg="container cannot run as a process, it is only probed" target=default/a/c error="init container \"init\" must run first"`,
		`msg="container rejected, neither run nor probed" target=default/a/d error="init container \"init\" must run first"`,
	} {
		if log := p.log.String(); !strings.Contains(log, want) {
			t.Errorf("the log is %s, want %s", log, want)
		}
	}
}

func TestNothingWaitsForASidecarThatIsRejected(t *testing.T) {
	p := newPodsAt(t)
	p.write(t, "a.yaml", `{apiVersion: v1, kind: Pod, metadata: {name: a}, spec: {
		initContainers: [{name: side, image: i, command: ["x\0"], restartPolicy: Always}], containers: [{name: c, image: i, command: [x]}]}}`, time.Hour)
	p.refresh(t)
	all := p.Add(&config.Config{Targets: map[string]config.Target{}, Set: probe.Set{}}).Targets
	if c := all["default/a/c"]; len(all) != 1 || len(c.StartAfter) > 0 {
		t.Errorf("there is %+v", all)
	}
}

func TestInitContainersRunFirst(t *testing.T) {
	p := newPodsAt(t)
	p.write(t, "a.yaml", `{apiVersion: v1, kind: Pod, metadata: {name: a}, spec: {
		initContainers: [{name: init, image: i, command: [one]}, {name: side, image: i, command: [two], restartPolicy: Always}],
		containers: [{name: c, image: i, command: [three], restartPolicy: Never, restartPolicyRules: [{action: Restart, exitCodes: {operator: In, values: [42]}}], lifecycle: {stopSignal: SIGQUIT, preStop: {httpGet: {port: 8080, path: /drain}}}, env: [{name: NODE, valueFrom: {fieldRef: {fieldPath: spec.nodeName}}}]}]}}`, time.Hour)
	if got := p.refresh(t); got != "default/a/init=one default/a/side=two default/a/c=three" {
		t.Fatalf("there is %q", got)
	}
	all := p.Add(&config.Config{Targets: map[string]config.Target{}, Set: probe.Set{}}).Targets
	if init := all["default/a/init"]; !init.Settings.(restart.Unit).Oneshot || init.Settings.(restart.Unit).Policy != restart.OnFailure {
		t.Errorf("the init container is %+v", init)
	}
	c := all["default/a/c"]
	if want := []string{"default/a/init", "default/a/side"}; !slices.Equal(c.StartAfter, want) || c.Settings.(restart.Unit).StopSignal.String() != "SIGQUIT" {
		t.Errorf("the container is %+v", c)
	}
	if codes := c.Settings.(restart.Unit).RestartExitCodes; !slices.Equal(codes, []string{"42"}) {
		t.Errorf("it is restarted after %q", codes)
	}
	if p := c.Settings.(restart.Unit).PreStop; p == nil || p.URL != "http://127.0.0.1:8080/drain" {
		t.Errorf("before its end there is %+v", p)
	}
	if name, _ := os.Hostname(); c.Driver.(process.Config).Env["NODE"] != name {
		t.Errorf("its variables are %q", c.Driver.(process.Config).Env)
	}
}

func TestSidecarsEndInReverseOrderAfterTheContainersThatRun(t *testing.T) {
	p := newPodsAt(t)
	p.write(t, "a.yaml", `{apiVersion: v1, kind: Pod, metadata: {name: a}, spec: {
		initContainers: [{name: first, image: i, command: [x], restartPolicy: Always}, {name: init, image: i, command: [x]}, {name: second, image: i, command: [x], restartPolicy: Always}],
		containers: [{name: c, image: i, command: [x]}, {name: elsewhere, image: i, livenessProbe: {tcpSocket: {port: 80}}}, {name: d, image: i, command: [x]}]}}`, time.Hour)
	p.write(t, "b.yaml", `{apiVersion: v1, kind: Pod, metadata: {name: b}, spec: {
		initContainers: [{name: side, image: i, command: [x], restartPolicy: Always}], containers: [{name: c, image: i, livenessProbe: {tcpSocket: {port: 80}}}]}}`, time.Hour)
	if _, err := p.Refresh(p.now); err != nil {
		t.Fatal(err)
	}
	all := p.Add(&config.Config{Targets: map[string]config.Target{}, Set: probe.Set{}}).Targets
	for name, want := range map[string][]string{
		"default/a/first": {"default/a/d", "default/a/c", "default/a/second"}, "default/a/second": {"default/a/d", "default/a/c"}, "default/a/init": nil, "default/a/c": nil,
		"default/b/side": nil,
	} {
		if got := all[name].Settings.(restart.Unit).StopAfter; !slices.Equal(got, want) {
			t.Errorf("%s ends after %q, want %q", name, got, want)
		}
	}
}

func TestPortConflictsAreLogged(t *testing.T) {
	listening := func(name, probe string) string {
		return "{apiVersion: v1, kind: Pod, metadata: {name: " + name + "}, spec: {containers: [{name: c, image: i, command: [x], ports: [{name: web, containerPort: 80}], livenessProbe: {" + probe + "}}]}}"
	}
	p := newPodsAt(t)
	p.write(t, "1.yaml", listening("a", "httpGet: {port: web}"), time.Hour)
	p.write(t, "2.yaml", strings.Replace(listening("b", "tcpSocket: {port: 80, host: h}"), "containerPort: 80", "containerPort: 81", 1), time.Hour)
	p.refresh(t)
	if log := p.log.String(); log != "" {
		t.Errorf("the log is %s", log)
	}
	p.write(t, "3.yaml", listening("d", "tcpSocket: {port: 8080}"), time.Hour)
	p.refresh(t)
	const want = `level=WARN msg="port conflict" target=default/d/c detail="port 80 is also used by default/a/c, and processes share the ports of this machine"`
	if log := p.log.String(); strings.Count(log, "WARN") != 1 || !strings.Contains(log, want) {
		t.Errorf("the log is %s, want %s", log, want)
	}
}

func TestPodsAreProbedOnLoopback(t *testing.T) {
	p := newPodsAt(t)
	p.write(t, "a.yaml", `{apiVersion: v1, kind: Pod, metadata: {name: a}, spec: {restartPolicy: OnFailure, terminationGracePeriodSeconds: 7, containers: [
		{name: c, image: i, command: [x], env: [{name: A, value: b}], workingDir: /srv, ports: [{name: http, containerPort: 80}], livenessProbe: {httpGet: {port: http}, periodSeconds: 3}}]}}`, time.Hour)
	p.refresh(t)
	was := &config.Config{Set: probe.Set{}, Targets: map[string]config.Target{"other": {}}}
	all := p.Add(was)
	made, there := all.Set[probe.ID{Target: "default/a/c", Kind: probe.Liveness}]
	if !there || made.Target.Address != "127.0.0.1" || made.Target.Ports["http"] != 80 || made.Target.Env["A"] != "b" || made.Rule.Period != 3*time.Second {
		t.Errorf("the probe is %+v", made)
	}
	target := all.Targets["default/a/c"]
	unit, driver := target.Settings.(restart.Unit), target.Driver.(process.Config)
	if unit.Policy != restart.OnFailure || unit.TerminationGracePeriod != 7*time.Second || driver.Dir != "/srv" || driver.Env["A"] != "b" {
		t.Errorf("the target is %+v", target)
	}
	if len(all.Targets) != 2 || len(was.Targets) != 1 || len(was.Set) != 0 {
		t.Errorf("there are %d targets, and %d in what was given", len(all.Targets), len(was.Targets))
	}
}

func TestTheFirstTargetKeepsItsName(t *testing.T) {
	p := newPodsAt(t)
	p.write(t, "1.yaml", pod("a", "first"), time.Hour)
	p.write(t, "2.yaml", pod("a", "second"), time.Hour)
	p.refresh(t)
	got := p.Add(&config.Config{Targets: map[string]config.Target{}, Set: probe.Set{}})
	if command := got.Targets["default/a/c"].Driver.(process.Config).Command; !slices.Equal(command, []string{"first"}) {
		t.Errorf("the pod runs %q", command)
	}
	if !strings.Contains(p.log.String(), "the name is already used by another target") {
		t.Errorf("the log is %s", p.log.String())
	}
}
