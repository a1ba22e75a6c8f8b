package reference

import (
	"errors"
	"flag"
	"fmt"
	"os"
	"path/filepath"
	"regexp"
	"slices"
	"strconv"
	"strings"
	"testing"
	"time"

	"github.com/sonde-probe/sonde/agent/store"
	"github.com/sonde-probe/sonde/api"
	"github.com/sonde-probe/sonde/api/metrics"
	"github.com/sonde-probe/sonde/cmd/engine/internal/handlers"
	"github.com/sonde-probe/sonde/config"
	"github.com/sonde-probe/sonde/engine"
	"github.com/sonde-probe/sonde/fleet/quorum"
	"github.com/sonde-probe/sonde/internal/bytesize"
	"github.com/sonde-probe/sonde/probe"
	"github.com/sonde-probe/sonde/restart"
	"github.com/sonde-probe/sonde/tests/tier"
	"github.com/sonde-probe/sonde/wasmhost"
)

var rewrite = flag.Bool("rewrite", false, "write docs/configuration")

const directory = "../../../../docs/configuration"

func TestPagesAreThoseOfTheSchemas(t *testing.T) {
	files := documents()
	if *rewrite {
		if err := os.MkdirAll(directory, 0o755); err != nil {
			t.Fatal(err)
		}
		for name, text := range files {
			if err := os.WriteFile(filepath.Join(directory, name), []byte(text), 0o644); err != nil {
				t.Fatal(err)
			}
		}
	}
	for name, text := range files {
		written, err := os.ReadFile(filepath.Join(directory, name))
		if err != nil || string(written) != text {
			t.Errorf("docs/configuration/%s is not what the schemas say (make docs writes it): %v", name, err)
		}
	}
	there, err := os.ReadDir(directory)
	if err != nil {
		t.Fatal(err)
	}
	for _, f := range there {
		if _, ok := files[f.Name()]; !ok {
			t.Errorf("docs/configuration/%s belongs to no block", f.Name())
		}
	}
}

func TestEachBlockAndArgumentIsDescribed(t *testing.T) {
	all := pages()
	used := map[string]bool{}
	for _, p := range all {
		used[p.name+".txt"] = true
		for _, e := range p.entries() {
			f := e.field
			switch {
			case e.page:
			case f.Doc == "":
				t.Errorf("%s.%s has no description: add a tag doc to its field", p.name, e.path)
			case strings.HasSuffix(f.Doc, "."):
				t.Errorf("%s.%s: the description ends in a period, which is added", p.name, e.path)
			case !f.Required && f.Type != config.Block && f.Type != config.Object && f.Default == nil && f.Unset == "":
				t.Errorf("%s.%s has no default: add a tag default to its field", p.name, e.path)
			}
		}
	}
	there, err := texts.ReadDir("blocks")
	if err != nil {
		t.Fatal(err)
	}
	for _, f := range there {
		if !used[f.Name()] {
			t.Errorf("blocks/%s describes no block", f.Name())
		}
	}
	for _, f := range config.Language(handlers.Options()).Fields {
		if !used[f.Name+".txt"] {
			t.Errorf("the block %s has no text: write blocks/%s.txt", f.Name, f.Name)
		}
	}
}

// rest is a target that completes an example, since a configuration needs a target.
const rest = "target \"rest of the example\" {\n  address = \"127.0.0.1\"\n  probe \"readiness\" {\n    tcp { port = 80 }\n  }\n}\n"

// parse parses a configuration as if its plugins and scripts existed and had a port.
func parse(text string) error {
	o := handlers.Options()
	port := config.Handler{
		Schema: config.Schema{Fields: []config.Field{{Name: "port", Type: config.String}}},
		Make:   func(config.Values, config.Context) (probe.Handler, error) { return probe.HandlerFunc(nil), nil },
	}
	grpc := o.Handlers["grpc"]
	grpc.Load = func(config.Engine) (config.Handler, error) { return port, nil }
	o.Handlers["grpc"] = grpc
	o.Plugin = func(_ config.Engine, p config.Plugin) (string, func() (config.Handler, error), error) {
		return p.SHA256, func() (config.Handler, error) { return port, checkLimits(p.Settings) }, nil
	}
	o.Script = func(_ config.Engine, s config.Script) (config.Handler, error) { return port, checkLimits(s.Settings) }
	_, diags := config.Parse([]config.Source{{Name: "example.hcl", Bytes: []byte(text + rest)}}, o)
	return diags.Err()
}

// checkLimits returns the plugin host's errors about limits. It validates them before the module.
func checkLimits(settings any) error {
	c, _ := settings.(wasmhost.Config)
	c.Module = []byte("not a module")
	_, err := wasmhost.Load(c)
	var field *probe.FieldError
	if errors.As(err, &field) && (strings.HasPrefix(field.Field, "limits") || strings.HasPrefix(field.Field, "compile")) {
		return err
	}
	return nil
}

func TestExamplesAreValid(t *testing.T) {
	t.Setenv("BACKUP_TOKEN", "correct-horse-battery")
	for _, p := range pages() {
		examples := examplesOf(p.text)
		if len(examples) == 0 {
			t.Errorf("%s has no example", p.name)
		}
		for _, example := range examples {
			if err := parse(example); err != nil {
				t.Errorf("%s: %v", p.name, err)
			}
			if formatted := strings.ReplaceAll(example, "\t", ""); formatted != example {
				t.Errorf("%s: the example has tabs", p.name)
			}
		}
	}
}

// The configurations in docs/gray.md are complete.
func TestTheConfigurationsForPartialFailuresAreValid(t *testing.T) {
	text, err := os.ReadFile("../../../../docs/gray.md")
	if err != nil {
		t.Fatal(err)
	}
	all := examplesOf(string(text))
	for _, example := range all {
		if err := parse(example); err != nil {
			t.Error(err)
		}
	}
	if len(all) < 2 {
		t.Errorf("there are %d configurations", len(all))
	}
}

var fence = regexp.MustCompile("(?s)```hcl\n(.*?)```")

func examplesOf(text string) (all []string) {
	for _, m := range fence.FindAllStringSubmatch(text, -1) {
		all = append(all, m[1])
	}
	return all
}

// beside has further arguments that are needed with a limit, or with all limits of an argument: limits of damping, and of
// quorum, depend on each other.
var beside = map[string]map[string]string{
	`damping.half_life = "24h0m0s"`: {"max": `"168h"`},
	`damping.suppress = 2`:          {"reuse": "1"},
	`damping.suppress = 100000`:     {"half_life": `"1m"`},
	`damping.reuse = 1`:             {"half_life": `"1m"`},
	`damping.reuse = 99999`:         {"suppress": "100000"},
	`damping.max = "1s"`:            {"half_life": `"1s"`, "suppress": "1000"},
	`quorum.min = 15`:               {"vantages": "15"},
	`http.keepalive.idle`:           {"reuse_connection": "true"},
	`http.keepalive.interval`:       {"reuse_connection": "true"},
	`http.keepalive.count`:          {"reuse_connection": "true"},
	`http.fresh_every`:              {"reuse_connection": "true"},
	`tcp.fresh_every`:               {"reuse_connection": "true", "send": `"EHLO x"`},
	`tcp.max_ends`:                  {"keepalive.idle": `"60s"`},
}

func TestLimitsAreThoseThatAreChecked(t *testing.T) {
	tier.Slow(t)
	t.Setenv("BACKUP_TOKEN", "correct-horse-battery")
	checked := 0
	for _, p := range pages() {
		if p.name == "defaults" {
			continue // it has the arguments of probe
		}
		if p.name == "discover" {
			continue // its arguments depend on its label
		}
		for _, e := range p.entries() {
			for _, limit := range []struct {
				text string
				step int64
			}{{e.field.Min, -1}, {e.field.Max, +1}} {
				if limit.text == "" || e.page {
					continue
				}
				checked++
				inside, beyond := value(t, e.field, limit.text, 0), value(t, e.field, limit.text, limit.step)
				text := with(t, p, e, inside)
				name := p.name + "." + e.path
				for _, needs := range []map[string]string{beside[name], beside[name+" = "+inside]} {
					for path, value := range needs {
						text = set(text, p, entry{path: path}, value)
					}
				}
				if err := parse(text); err != nil {
					t.Errorf("%s.%s: the limit %s is rejected: %v", p.name, e.path, inside, err)
				}
				if err := parse(with(t, p, e, beyond)); err == nil || !strings.Contains(err.Error(), e.field.Name) {
					t.Errorf("%s.%s: %s is beyond the limit %s, and gives %v", p.name, e.path, beyond, inside, err)
				}
			}
		}
	}
	if checked < 20 {
		t.Errorf("%d limits were checked", checked)
	}
}

// value formats a limit for a configuration, moved by a step.
func value(t *testing.T, f config.Field, limit string, step int64) string {
	t.Helper()
	switch f.Type {
	case config.Int:
		n, err := strconv.ParseInt(limit, 10, 64)
		if err != nil {
			t.Fatal(err)
		}
		return strconv.FormatInt(n+step, 10)
	case config.Duration:
		d, err := time.ParseDuration(limit)
		if err != nil {
			t.Fatal(err)
		}
		return strconv.Quote((d + time.Duration(step)*time.Millisecond).String())
	case config.Size:
		n, ok := bytesize.Parse(limit)
		if !ok {
			t.Fatalf("%s is not a size", limit)
		}
		return fmt.Sprintf(`"%dB"`, int64(n)+step)
	}
	t.Fatalf("%s has a limit and is of type %v", f.Name, f.Type)
	return ""
}

// with returns the first example of a page with an argument set.
func with(t *testing.T, p *page, e entry, value string) string {
	t.Helper()
	return set(examplesOf(p.text)[0], p, e, value)
}

// set returns an example of a page with an argument set.
func set(text string, p *page, e entry, value string) string {
	names := append([]string{p.name}, strings.Split(e.path, ".")...)
	line := fmt.Sprintf("%s = %s\n", names[len(names)-1], value)
	if i := slices.IndexFunc(p.entries(), func(outer entry) bool {
		return outer.path+"."+e.field.Name == e.path && outer.field.Type == config.Object
	}); i >= 0 {
		names = names[:len(names)-1]
		line = fmt.Sprintf("%s = { %s = %s, per = \"1m\" }\n", names[len(names)-1], e.field.Name, value)
		if e.path == "restart_budget.min" {
			line = strings.Replace(line, "{", `{ share = "10%",`, 1)
		}
	}
	opening := func(name string) []int {
		return regexp.MustCompile(`(?m)^ *` + name + `( ".*")? \{\n`).FindStringIndex(text)
	}
	at := 0
	for i, name := range names[:len(names)-1] {
		if found := opening(name); found != nil {
			at = found[1]
			continue
		}
		for _, inner := range slices.Backward(names[i : len(names)-1]) {
			line = inner + " {\n" + line + "}\n"
		}
		break
	}
	argument := regexp.MustCompile(`(?m)^ *` + names[len(names)-1] + ` += .*\n`)
	rest := text[at:]
	if end := regexp.MustCompile(`(?m)^ *\}$`).FindStringIndex(rest); end != nil {
		rest = argument.ReplaceAllString(rest[:end[0]], "") + rest[end[0]:]
	}
	return text[:at] + line + rest
}

func TestDefaultsAreThoseOfTheCode(t *testing.T) {
	const size = bytesize.Size(1)
	empty, _ := config.Parse(nil, config.Options{})
	backOff, damping := restart.Unit{}.WithDefaults().BackOff, probe.Damping{}.WithDefaults()
	defaultQuorum := quorum.Rule{}.WithDefaults()
	for name, want := range map[string]any{
		"engine.listen": api.DefaultListen, "engine.concurrency": engine.DefaultConcurrency,
		"engine.metrics_max_probes": metrics.DefaultMaxProbes, "engine.state_max_age": store.DefaultMaxAge,
		"engine.plugin_memory": size * wasmhost.DefaultTotalMemory, "engine.reload_guard": empty.Engine.ReloadGuard,
		"plugin.limits.module_size": size * wasmhost.DefaultModuleSize,
		"probe.period":              probe.DefaultPeriod, "probe.timeout": probe.DefaultTimeout,
		"probe.success_threshold": probe.DefaultSuccessThreshold, "probe.failure_threshold": probe.DefaultFailureThreshold,
		"target.termination_grace_period": restart.DefaultTerminationGracePeriod,
		"target.back_off.initial":         backOff.Initial, "target.back_off.max": backOff.Max,
		"target.back_off.reset": backOff.Reset,
		"damping.half_life":     damping.HalfLife, "damping.suppress": damping.Suppress, "damping.reuse": damping.Reuse, "damping.max": damping.Max,
		"quorum.vantages": defaultQuorum.Vantages, "quorum.fail": defaultQuorum.Fail, "quorum.spread": defaultQuorum.Spread,
	} {
		f, err := find(pages(), name)
		if err != nil {
			t.Error(err)
			continue
		}
		shown, _, _ := strings.Cut(f.field.Unset, ",") // the rest is a condition
		if d, isDuration := want.(time.Duration); isDuration {
			if got, err := time.ParseDuration(shown); err != nil || got != d {
				t.Errorf("%s: the default is %v, but shown is %s", name, d, shown)
			}
		} else if shown != fmt.Sprint(want) {
			t.Errorf("%s: the default is %v, but shown is %s", name, want, shown)
		}
	}
}

func TestTheDefaultRestartBudgetIsThatOfTheCode(t *testing.T) {
	f, err := find(pages(), "engine.restart_budget")
	if err != nil {
		t.Fatal(err)
	}
	shown, _, _ := strings.Cut(f.field.Unset, ", or none")
	c, diags := config.Parse([]config.Source{{Name: "x.hcl", Bytes: []byte("engine { restart_budget = " + shown + " }\n" + rest)}}, handlers.Options())
	if err := diags.Err(); err != nil {
		t.Fatal(err)
	}
	if got := c.Engine.Settings.(restart.Config).Budget; got != restart.DefaultBudget {
		t.Errorf("the default is %+v, but shown is %+v", restart.DefaultBudget, got)
	}
}

func TestFunctionsDoWhatTheirLinesShow(t *testing.T) {
	dir := t.TempDir()
	for name, text := range map[string]string{"hosts.txt": "10.0.0.7\n", "greeting.tmpl": "hello ${name}\n"} {
		if err := os.WriteFile(filepath.Join(dir, name), []byte(text), 0o644); err != nil {
			t.Fatal(err)
		}
	}
	text, err := texts.ReadFile("functions.md")
	if err != nil {
		t.Fatal(err)
	}
	shown := map[string]bool{}
	for _, row := range regexp.MustCompile("(?m)^\\| `(.+?)` \\| `(.+?)` \\|").FindAllStringSubmatch(string(text), -1) {
		call, result := row[1], row[2]
		for _, name := range regexp.MustCompile(`([a-z0-9]+)\(`).FindAllStringSubmatch(call, -1) {
			shown[name[1]] = true
		}
		source := fmt.Sprintf("variable \"x\" {\n  default = true\n  validation {\n    condition = jsonencode(%s) == jsonencode(%s)\n  }\n}\n%s", call, result, rest)
		_, diags := config.Parse([]config.Source{{Name: filepath.Join(dir, "x.hcl"), Bytes: []byte(source)}}, handlers.Options())
		if err := diags.Err(); err != nil {
			t.Errorf("%s is not %s: %v", call, result, err)
		}
	}
	for _, name := range config.Functions() {
		if !shown[name] {
			t.Errorf("functions.md does not show %s()", name)
		}
	}
}

func TestNamesAreFound(t *testing.T) {
	for name, want := range map[string]string{
		"engine": "engine", "engine.listen": "engine.listen", "target.probe.http": "http", "probe.http.path": "http.path",
		"http.tls.ca_file": "http.tls.ca_file", "restart_budget": "engine.restart_budget", "half_open": "tcp.half_open",
	} {
		f, err := find(pages(), name)
		if err != nil || f.name() != want {
			t.Errorf("%s: got %v, %v", name, f, err)
		}
	}
	for name, want := range map[string]string{
		"htpp": `did you mean "http"?`, "listn": `did you mean "listen"?`, "http.pth": `did you mean "http.path"?`,
		"tls": "in several blocks: write engine.tls, cluster.tls, alertmanager.tls, webhook.tls, grpc.tls, http.tls, tcp.tls", "zzzzzzzzzz": "sonde docs lists the blocks",
	} {
		if _, err := find(pages(), name); err == nil || !strings.Contains(err.Error(), want) {
			t.Errorf("%s: got %v", name, err)
		}
	}
}
