package manifests

import (
	"bytes"
	"flag"
	"io"
	"os"
	"path/filepath"
	"reflect"
	"slices"
	"strings"
	"testing"

	execprobe "github.com/sonde-probe/sonde/builtin/exec"
	httpprobe "github.com/sonde-probe/sonde/builtin/http"
	tcpprobe "github.com/sonde-probe/sonde/builtin/tcp"
	"github.com/sonde-probe/sonde/cmd/engine/internal/embedded"
	"github.com/sonde-probe/sonde/cmd/engine/internal/handlers"
	"github.com/sonde-probe/sonde/config"
	"github.com/sonde-probe/sonde/config/document"
	"github.com/sonde-probe/sonde/internal/command"
	"github.com/sonde-probe/sonde/kube"
	"github.com/sonde-probe/sonde/probe"
	"github.com/sonde-probe/sonde/restart"
	"github.com/sonde-probe/sonde/restart/process"
	"github.com/sonde-probe/sonde/tests/golden"
)

var rewriteGolden = flag.Bool("rewrite", false, "write the golden files anew")

// testManifests returns the manifests of testdata.
func testManifests(t *testing.T) []string {
	t.Helper()
	var names []string
	files, errs := readFiles(nil, []string{"testdata"})
	if len(errs) > 0 {
		t.Fatal(errs)
	}
	_, noGRPC := embedded.GRPC()
	for _, file := range files {
		if noGRPC == nil || !bytes.Contains(file.Text, []byte("grpc:")) { // make build builds the plugin
			names = append(names, file.Name)
		}
	}
	return names
}

// flagsOf returns the flags for importing a manifest.
func flagsOf(name string) []string {
	if base := filepath.Base(name); strings.HasPrefix(base, "tutorial-") {
		return []string{"--entrypoint", "busybox=", "--entrypoint", "e2e-test-images/agnhost=/agnhost", "--entrypoint", "goproxy=/goproxy"}
	}
	return nil
}

// runImport runs sonde import in this process.
func runImport(stdin io.Reader, args ...string) (stdout, stderr string, err error) {
	var outBuf, errBuf bytes.Buffer
	c := Command()
	c.SilenceUsage, c.SilenceErrors = true, true
	c.SetIn(stdin)
	c.SetOut(&outBuf)
	c.SetErr(&errBuf)
	c.SetArgs(args)
	err = c.Execute()
	return outBuf.String(), errBuf.String(), err
}

// TestManifestsBecomeReadableHCL compares the output and the warnings of sonde import with reviewed golden files.
func TestManifestsBecomeReadableHCL(t *testing.T) {
	for _, name := range testManifests(t) {
		testGolden(t, name, name+".golden", flagsOf(name)...)
	}
}

// TestManifestsBecomeContainers does the same for containers of a container runtime. Every manifest becomes a valid
// configuration.
func TestManifestsBecomeContainers(t *testing.T) {
	reviewed := []string{"contained.yaml", "native-sidecar.yaml", "node-exporter.yaml", "start-order.yaml", "tutorial-exec.yaml", "wordpress.yaml"}
	for _, name := range testManifests(t) {
		if slices.Contains(reviewed, filepath.Base(name)) {
			testGolden(t, name, name+".docker.golden", "--runtime", "docker")
		} else if _, stderr, err := runImport(nil, "--runtime", "docker", name); err != nil {
			t.Errorf("%s: %v\n%s", name, err, stderr)
		}
	}
}

func testGolden(t *testing.T, name, file string, flags ...string) {
	t.Run(filepath.Base(name), func(t *testing.T) {
		out, stderr, err := runImport(nil, append(flags, name)...)
		if err != nil {
			t.Fatalf("%v\n%s", err, stderr)
		}
		got := filepath.ToSlash(out + warningLines(stderr))
		golden.Check(t, file, got, *rewriteGolden)
		laid, _ := document.Format(config.Source{Name: "x.hcl", Bytes: []byte(out)})
		if string(laid) != out {
			t.Error("the output is not in the canonical style")
		}
	})
}

// warningLines formats warnings as comments, as in a golden file.
func warningLines(stderr string) string {
	var s strings.Builder
	for line := range strings.Lines(stderr) {
		if s.Len() == 0 {
			s.WriteString("\n# Warnings:\n#\n")
		}
		s.WriteString(strings.TrimRight("# "+line, " \n") + "\n")
	}
	return s.String()
}

// recorded is a handler that records its configuration.
type recorded[C any] struct {
	probe.Handler
	config C
}

func record[C any](c C) (*recorded[C], error) { return &recorded[C]{config: c}, nil }

// withHandlers returns the options of the command, with other handlers.
func withHandlers(h map[string]config.Handler) config.Options {
	o := handlers.Options()
	o.Handlers = h
	return o
}

// recorders returns the built-in handler blocks with handlers that record their configuration.
func recorders() map[string]config.Handler {
	return map[string]config.Handler{
		"exec": config.Of(record[execprobe.Config]),
		"http": config.Of(record[httpprobe.Config]),
		"tcp":  config.Of(record[tcpprobe.Config]),
		"grpc": config.Of(record[grpcConfig]),
	}
}

// grpcConfig holds the settings of a grpc block that a manifest can set.
type grpcConfig struct {
	Port    string `hcl:"port"`
	Service string `hcl:"service,optional"`
}

// TestManifestsMeanTheSameAsHCL compares the parsed configuration with the manifest.
func TestManifestsMeanTheSameAsHCL(t *testing.T) {
	for _, name := range testManifests(t) {
		t.Run(filepath.Base(name), func(t *testing.T) {
			out, stderr, err := runImport(nil, append(flagsOf(name), name)...)
			if err != nil {
				t.Fatalf("%v\n%s", err, stderr)
			}
			loaded, diags := config.Parse([]config.Source{{Name: "x.hcl", Bytes: []byte(out)}}, withHandlers(recorders()))
			if err := diags.Err(); err != nil {
				t.Fatalf("%v in\n%s", err, out)
			}
			text, err := os.ReadFile(name)
			if err != nil {
				t.Fatal(err)
			}
			all, errs := kube.Read(name, text)
			if len(errs) > 0 {
				t.Fatal(errs)
			}
			compared := 0
			for _, m := range all {
				containers, err := (entrypoints{}).containers(m)
				if err != nil {
					t.Fatal(err)
				}
				for _, p := range containers {
					c := p.Container
					compared += compareContainer(t, c, loaded, stderr)
				}
			}
			if compared != len(loaded.Set) {
				t.Errorf("the configuration has %d probes, the manifest accounts for %d", len(loaded.Set), compared)
			}
		})
	}
}

// compareContainer compares a container with its target, and returns the number of their common probes.
func compareContainer(t *testing.T, c kube.Container, loaded *config.Config, stderr string) int {
	t.Helper()
	target, there := loaded.Targets[c.Target.Name]
	if !there {
		if what := "ontainer \"" + c.Name + "\" is "; !strings.Contains(stderr, "C"+what+"left out") && !strings.Contains(stderr, "Init c"+what+"not run") {
			t.Errorf("container %s is dropped without a warning", c.Name)
		}
		return 0
	}
	if target.Driver == nil {
		if !strings.Contains(stderr, "container "+c.Name+": It is only probed") {
			t.Errorf("the process of container %s is dropped without a warning", c.Name)
		}
	} else {
		compareProcess(t, c, target)
	}
	compared := 0
	for _, p := range c.Probes {
		got, there := loaded.Set[probe.ID{Target: c.Target.Name, Kind: p.Rule.Kind}]
		if !there {
			if !strings.Contains(stderr, "container "+c.Name+": The "+p.Rule.Kind.String()+" probe is left out") {
				t.Errorf("the %v probe of container %s is dropped without a warning", p.Rule.Kind, c.Name)
			}
			continue
		}
		compared++
		if target.Driver == nil {
			p.Rule.TerminationGracePeriod = 0
		}
		compareProbe(t, p, got)
		if !reflect.DeepEqual(got.Target.Ports, c.Target.Ports) {
			t.Errorf("ports of %s are %v, want %v", c.Target.Name, got.Target.Ports, c.Target.Ports)
		}
	}
	return compared
}

func compareProcess(t *testing.T, c kube.Container, target config.Target) {
	t.Helper()
	p := target.Driver.(process.Config)
	words, err := entrypoints{"busybox": {}, "agnhost": {"/agnhost"}, "goproxy": {"/goproxy"}}.command(c)
	if err != nil || len(c.Obstacles) > 0 {
		t.Errorf("container %s runs despite %v, %q", c.Name, err, c.Obstacles)
	}
	want := process.Config{Command: words, Env: c.Target.Env, Dir: c.Target.Dir, User: c.Target.User}
	if len(want.Env) == 0 {
		want.Env = nil
	}
	if !reflect.DeepEqual(p, want) {
		t.Errorf("the process of %s is %+v, want %+v", c.Name, p, want)
	}
	unit := target.Settings.(restart.Unit).WithDefaults()
	if unit.TerminationGracePeriod != c.TerminationGracePeriod || unit.Policy != restartPolicy(c) {
		t.Errorf("the target of %s is %+v", c.Name, target)
	}
}

func compareProbe(t *testing.T, p kube.Probe, got probe.Probe) {
	t.Helper()
	if got.Rule != p.Rule {
		t.Errorf("the rule is %+v, want %+v", got.Rule, p.Rule)
	}
	var is, want any
	switch h := got.Handler.(type) {
	case *recorded[execprobe.Config]:
		words := slices.Clone(h.config.Command)
		for i, word := range words {
			words[i] = command.Expand(word, got.Target.Env)
		}
		is = execprobe.Config{Command: words}
		want = execprobe.Config{Command: p.Command}
	case *recorded[httpprobe.Config]:
		is, want = h.config, httpConfig(p.Action)
	case *recorded[tcpprobe.Config]:
		is, want = h.config, tcpConfig(p.Action)
	case *recorded[grpcConfig]:
		is, want = h.config, grpcConfig{p.Port, p.Service}
	}
	if !reflect.DeepEqual(is, want) {
		t.Errorf("the handler is made of %+q, want %+q", is, want)
	}
}

func TestAllManifestsOfADirectoryAreOneConfiguration(t *testing.T) {
	dir := t.TempDir()
	for name, text := range map[string]string{
		"a.yaml": "{apiVersion: v1, kind: Pod, metadata: {name: a}, spec: {containers: [{name: c, image: i, command: [x]}]}}",
		"b.yml":  "{apiVersion: v1, kind: Pod, metadata: {name: b}, spec: {containers: [{name: c, image: i, command: [x]}]}}",
		"c.json": `{"apiVersion": "v1", "kind": "Pod", "metadata": {"name": "c"}, "spec": {"containers": [{"name": "c", "image": "i", "command": ["x"]}]}}`,
		"d.txt":  "no manifest", ".e.yaml": "no manifest",
	} {
		if err := os.WriteFile(filepath.Join(dir, name), []byte(text), 0o644); err != nil {
			t.Fatal(err)
		}
	}
	in := strings.NewReader("{apiVersion: v1, kind: Pod, metadata: {name: stdin}, spec: {containers: [{name: c, image: i, command: [x]}]}}")
	out, stderr, err := runImport(in, dir, "-")
	if err != nil || stderr != "" {
		t.Fatalf("%v\n%s", err, stderr)
	}
	var found []string
	for line := range strings.Lines(out) {
		if name, ok := strings.CutPrefix(line, "target "); ok {
			found = append(found, strings.Trim(name, "\" {\n"))
		}
	}
	if want := []string{"default/a/c", "default/b/c", "default/c/c", "default/stdin/c"}; !slices.Equal(found, want) {
		t.Errorf("targets are %q, want %q", found, want)
	}
}

func TestInvalidManifestsWriteNothing(t *testing.T) {
	pod := func(spec string) string {
		return "{apiVersion: v1, kind: Pod, metadata: {name: a}, spec: {containers: [" + spec + "]}}\n"
	}
	for _, test := range []struct{ name, text, want string }{
		{"nothing", "# a\n---\n", "error: there is no manifest in -\n"},
		{"several errors", pod("{name: A, image: i, livenessProbe: {}}"), "a-z0-9]([-a-z0-9]*[a-z0-9])?')\nerror: -:1: Pod default/a: spec.containers[0].livenessProbe: Required value: must specify a handler type\n\n2 errors"},
		{"no YAML", "a: [", "error: -:1: line 1: did not find expected node content"},
		{"no object", "- a", "error: -:1: not an object of a Kubernetes manifest, in YAML or JSON"},
		{"no kind", "a: b", "error: -:1: kind is missing"},
		{"another version", strings.Replace(pod("{name: a, image: i}"), "v1", "v2", 1), `error: -:1: Pod a: no matches for kind "Pod" in version "v2": write apiVersion: v1`},
		{"no image", pod("{name: a, command: [x]}"), "error: -:1: Pod default/a: spec.containers[0].image: Required value"},
		{"a field twice", "a: 1\n---\nkind: Pod\nkind: Pod", `error: -:3: line 4: key "kind" already set in map`},
		{"an invalid probe", pod("{name: a, image: i, livenessProbe: {}}"), "error: -:1: Pod default/a: spec.containers[0].livenessProbe: Required value: must specify a handler type"},
		{"a target twice", pod("{name: a, image: i, command: [x]}") + "---\n" + pod("{name: a, image: i, command: [x]}"), `error: -:3: Pod default/a: container a: target "default/a/a" is defined already by -:1: Pod default/a: container a`},
		{"a wrong type", pod("{name: a, ports: x}"), "error: -:1: Pod a: spec.containers.ports has type string: it must be a list"},
		{"a zero byte", pod(`{name: a, image: i, command: ["a\0"]}`), "has a NUL byte"},
		{"a policy that the object cannot have", "{apiVersion: batch/v1, kind: Job, metadata: {name: j}, spec: {template: {spec: {containers: [{name: a}]}}}}",
			`error: -:1: Job j: spec.template.spec.restartPolicy: Unsupported value: "Always": supported values: "OnFailure", "Never"`},
		{"paths of templates", "{apiVersion: apps/v1, kind: Deployment, metadata: {name: j}, spec: {template: {spec: {}}}}",
			"error: -:1: Deployment default/j: spec.template.spec.containers: Required value"},
	} {
		t.Run(test.name, func(t *testing.T) {
			out, stderr, err := runImport(strings.NewReader(test.text), "-")
			if err == nil || out != "" {
				t.Errorf("import = %q, %v", out, err)
			}
			if !strings.Contains(stderr+err.Error(), test.want) {
				t.Errorf("the errors are\n%s%v\nwant\n%s", stderr, err, test.want)
			}
		})
	}
}

func TestContainersThatRunElsewhereStartNoProcess(t *testing.T) {
	in := "{apiVersion: v1, kind: Pod, metadata: {name: a}, spec: {containers: [{name: a, image: i, command: [x], env: [{name: A, value: b}], readinessProbe: {exec: {command: ['$(A)$(B)']}}}]}}"
	out, stderr, err := runImport(strings.NewReader(in), "--address", "db.example.com", "-")
	if err != nil || strings.Contains(out, "process {") {
		t.Fatalf("%v\n%s%s", err, stderr, out)
	}
	for _, want := range []string{`address = "db.example.com"`, `exec { command = ["b$(B)"] }`, "runs on the engine's machine"} {
		if !strings.Contains(out, want) {
			t.Errorf("there is no %s in\n%s", want, out)
		}
	}
}

func TestGatesThatNothingOpensAreNamed(t *testing.T) {
	in := `{apiVersion: apps/v1, kind: Deployment, metadata: {name: a}, spec: {template: {spec: {readinessGates: [{conditionType: example.com/lb}, {conditionType: b}],
		schedulingGates: [{name: quota}], containers: [{name: a, image: i, command: [x]}]}}}}`
	out, stderr, err := runImport(strings.NewReader(strings.ReplaceAll(in, "\t", " ")), "-")
	for _, want := range []string{
		"The readiness gates example.com/lb, b do not count, since nothing sets conditions here: add a readiness probe",
		"The scheduling gates quota do not count: the containers are started and probed at once.",
	} {
		if err != nil || !strings.Contains(stderr, want) {
			t.Errorf("%v\n%s%s\nwant %s", err, stderr, out, want)
		}
	}
}

func TestFieldsOfAProcessAreNamedWhenItIsOnlyProbed(t *testing.T) {
	in := `{apiVersion: v1, kind: Pod, metadata: {name: a}, spec: {restartPolicy: Never, terminationGracePeriodSeconds: 5, securityContext: {runAsUser: 1, runAsGroup: 2}, containers: [
		{name: a, image: i, command: [x], args: [z], workingDir: /d, env: [{name: A, value: b}], securityContext: {runAsUser: 3}, restartPolicy: Never,
		livenessProbe: {tcpSocket: {port: 1}, terminationGracePeriodSeconds: 6}}]}}`
	const want = "Ignored fields, which are for a process: command, args, workingDir, env, securityContext.runAsUser, restartPolicy, " +
		"livenessProbe.terminationGracePeriodSeconds, spec.restartPolicy, spec.terminationGracePeriodSeconds, spec.securityContext.runAsUser, spec.securityContext.runAsGroup."
	for name, test := range map[string]struct {
		text string
		args []string
	}{
		"with --address": {in, []string{"--address", "10.0.0.7"}},
		"with an image":  {strings.Replace(in, "command: [x], ", "", 1), nil},
		"with a status":  {strings.Replace(in, "spec:", "status: {podIP: 10.0.0.7}, spec:", 1), nil},
	} {
		out, stderr, err := runImport(strings.NewReader(strings.ReplaceAll(test.text, "\t", " ")), append(test.args, "-")...)
		wanted := want
		if !strings.Contains(test.text, "command") {
			wanted = strings.Replace(want, "command, ", "", 1)
		}
		if err != nil || !strings.Contains(stderr, wanted) {
			t.Errorf("%s: the warnings are %v\n%s\nwant\n%s", name, err, stderr, wanted)
		}
		if strings.Contains(out, "termination_grace_period") {
			t.Errorf("%s: a grace period is written\n%s", name, out)
		}
	}
	out, stderr, err := runImport(strings.NewReader(strings.ReplaceAll(in, "\t", " ")), "-")
	if err != nil || stderr != "" || !strings.Contains(out, "process {") {
		t.Errorf("as a process: %v\n%s\n%s", err, stderr, out)
	}
}

func TestControlCharactersOfAManifestAreNotWritten(t *testing.T) {
	for _, text := range []string{
		`{apiVersion: v1, kind: "A\e[31m\u202e\nb", metadata: {name: "x\e[2J"}}`,
		`{apiVersion: v1, kind: Pod, metadata: {name: "x\e[2J"}, spec: {containers: [{name: "c\e", image: i}]}}`,
		`{apiVersion: v1, kind: Pod, metadata: {name: x}, spec: {"y\e[2J\n": 1, containers: [{name: c, image: "i\e[2J\nbad", "k\e": 1, readinessProbe: {httpGet: {port: 1, host: "h\e[2J"}}}]}}`,
	} {
		out, stderr, _ := runImport(strings.NewReader(text), "-")
		if all := out + stderr; strings.ContainsAny(all, "\x1b\u202e") || strings.Contains(all, "\nb") || all == "" {
			t.Errorf("%s is written as %q", text, all)
		}
	}
}
