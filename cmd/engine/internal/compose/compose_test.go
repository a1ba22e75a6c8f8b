package compose_test

import (
	"flag"
	"os"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"github.com/sonde-probe/sonde/cmd/engine/internal/compose"
	"github.com/sonde-probe/sonde/cmd/engine/internal/handlers"
	"github.com/sonde-probe/sonde/config"
	"github.com/sonde-probe/sonde/tests/golden"
)

var rewrite = flag.Bool("rewrite", false, "write the golden file anew")

func noEnv(string) (string, bool) { return "", false }

func TestAProjectBecomesTargets(t *testing.T) {
	path := filepath.Join("testdata", "shop", "compose.yaml")
	text, err := os.ReadFile(path)
	if err != nil {
		t.Fatal(err)
	}
	if !compose.Recognizes(text) {
		t.Error("it is not recognized")
	}
	doc, warnings, err := compose.Write(path, text, noEnv)
	if err != nil {
		t.Fatal(err)
	}
	got := string(doc.Bytes()) + "\n" + strings.Join(warnings, "\n") + "\n"
	golden.Check(t, filepath.Join("testdata", "shop.golden"), got, *rewrite)
	check(t, doc.Bytes())
}

// check runs the checks of sonde validate.
func check(t *testing.T, text []byte) {
	t.Helper()
	p := handlers.NewPlugins(t.Context(), handlers.WaitForNone, handlers.Silent)
	defer p.Close()
	if _, diags := (&handlers.Inputs{AllowEmpty: true}).Parse([]config.Source{{Name: "import.hcl", Bytes: text}}, nil, p); diags.HasErrors() {
		t.Errorf("it is invalid: %v\n%s", diags.Err(), text)
	}
}

// write converts a file of a project in a new directory with a .env file.
func write(t *testing.T, folder, text, env string) (string, error) {
	t.Helper()
	dir := filepath.Join(t.TempDir(), folder)
	if err := os.Mkdir(dir, 0o755); err != nil {
		t.Fatal(err)
	}
	if err := os.WriteFile(filepath.Join(dir, ".env"), []byte(env), 0o600); err != nil {
		t.Fatal(err)
	}
	doc, _, err := compose.Write(filepath.Join(dir, "compose.yaml"), []byte(text), func(name string) (string, bool) {
		value, isSet := map[string]string{"SET": "environment", "EMPTY": ""}[name]
		return value, isSet
	})
	if err != nil {
		return "", err
	}
	return string(doc.Bytes()), nil
}

func TestVariablesAreReplacedAsByDockerCompose(t *testing.T) {
	for text, want := range map[string]string{
		"plain": "plain", "$$x": "$x", "$$$$": "$$", "a$SET-b": "aenvironment-b", "${SET}${FILE}": "environmentfile",
		"${NONE:-d}": "d", "${NONE-d}": "d", "${EMPTY:-d}": "d", "${EMPTY-d}": "", "${SET:-d}": "environment", "${NONE}": "",
		"${NONE:-${FILE}}": "file", "${NONE:-${NONE:-${SET}}}!": "environment!", "${NONE:-a}b}": "ab}", "${NONE:-$$}": "$",
		"${SET:+yes}": "yes", "${EMPTY:+yes}": "", "${EMPTY+yes}": "yes", "${NONE+yes}": "", "${SET:?no}": "environment", "${EMPTY?no}": "",
		"${LATE}": "file and environment", "$SINGLE": "$FILE", "$DOUBLE": "file\tq\"x", "$(date)": "!write $$", "$": "!write $$", "${": "!write $$", "${a": "!write $$",
		"${}": "!is no variable", "${a b}": "!is no variable", "${1}": "!is no variable", "${NONE:?say ${FILE}}": "!variable NONE is required: say file", "${EMPTY:?x}": "!required",
	} {
		env := "FILE=file\nSET=not this\nLATE=$FILE and ${SET}\nSINGLE='$FILE'\nDOUBLE=\"${FILE}\tq\\\"x\" # comment\n"
		got, err := write(t, "p", "services: {a: {healthcheck: {test: [CMD, '"+text+"']}}}", env)
		word, isError := strings.CutPrefix(want, "!")
		switch {
		case isError && (err == nil || !strings.Contains(err.Error(), word)):
			t.Errorf("%s gives %v, want %q", text, err, word)
		case isError:
		case err != nil && want != "" || err == nil && want == "":
			t.Errorf("%s: %v\n%s", text, err, got)
		case err == nil && !strings.Contains(got, "command = [\""+strings.NewReplacer("\t", `\t`, `"`, `\"`, "$$", "$$$").Replace(want)+"\"]"):
			t.Errorf("%s became, instead of %q,\n%s", text, want, got)
		}
	}
}

func TestTheProjectHasTheNameThatDockerComposeGivesIt(t *testing.T) {
	for _, test := range []struct{ folder, text, env, want string }{
		{"My Shop.2", "", "", "myshop2"},
		{"__shop", "", "", "shop"},
		{"folder", "name: named", "", "named"},
		{"folder", "name: ${SET}-x", "", "environment-x"},
		{"folder", "name: named", "COMPOSE_PROJECT_NAME=by-env", "by-env"},
		{"folder", "name: Named", "", "!the project's name is \"Named\""},
		{"...", "", "", "!gives the project no name"},
	} {
		got, err := write(t, test.folder, test.text+"\nservices: {a: {image: a}}", test.env)
		if want, isError := strings.CutPrefix(test.want, "!"); isError {
			if err == nil || !strings.Contains(err.Error(), want) {
				t.Errorf("%+v gives %v", test, err)
			}
		} else if err != nil || !strings.Contains(got, `target "`+want+`/a"`) || !strings.Contains(got, `"com.docker.compose.project" = "`+want+`"`) {
			t.Errorf("%+v: %v\n%s", test, err, got)
		}
	}
}

func TestErrorsSayWhere(t *testing.T) {
	service := func(s string) string { return "services: {web: {" + s + "}}" }
	for text, want := range map[string]string{
		"services: [a]": "not a compose file", "services: {a: b}": "not a compose file", "a: [": "not a compose file",
		"services: {a: {healthcheck: !reset null}}":                     "it has the tag !reset",
		`services: {"a/b": {}}`:                                         `services has the name "a/b"`,
		service("healthcheck: x"):                                       "service web: healthcheck must not be of the type string",
		service("healthcheck: {test: {a: b}}"):                          "test must be a command",
		service("healthcheck: {test: [curl, x]}"):                       `healthcheck.test begins with "curl"`,
		service("healthcheck: {test: [CMD]}"):                           "no command after CMD",
		service("healthcheck: {test: [CMD-SHELL, a, b]}"):               "no command after CMD-SHELL",
		service("healthcheck: {test: a, interval: 30}"):                 `healthcheck: interval is "30"`,
		service("healthcheck: {test: a, timeout: soon}"):                `healthcheck: timeout is "soon"`,
		service("healthcheck: {test: a, timeout: -1s}"):                 `healthcheck: timeout is "-1s"`,
		service("healthcheck: {test: a, retries: many}"):                `"many" is not a whole number`,
		service("healthcheck: {test: a, retries: -1}"):                  "retries is -1",
		service("healthcheck: {test: a, start_period: 99999999h}"):      `start_period is "99999999h"`,
		service("restart: sometimes"):                                   `restart is "sometimes"; always, any,`,
		service("scale: 101"):                                           "from 0 to 100",
		service("scale: -1"):                                            "from 0 to 100",
		service("stop_grace_period: x"):                                 `stop_grace_period is "x"`,
		service("profiles: {a: b}"):                                     "profiles must not be of the type object",
		service("depends_on: 3"):                                        "depends_on must not be of the type string",
		service("healthcheck: {test: '${A:?is needed}'}"):               "healthcheck: test: variable A is required: is needed",
		"services: {" + strings.Repeat("a: {}, ", 1) + "b: {scale: x}}": `service b: "x" is not a whole number`,
	} {
		if got, err := write(t, "p", text, ""); err == nil || !strings.Contains(err.Error(), want) {
			t.Errorf("%s gives %v, want %q\n%s", text, err, want, got)
		}
	}
	for env, want := range map[string]string{"=x": "is no line NAME=value", "A B=x": "is no line NAME=value", `A="x`: "A: the quote \" has no end"} {
		if _, err := write(t, "p", service(""), env); err == nil || !strings.Contains(err.Error(), want) {
			t.Errorf(".env with %s gives %v, want %q", env, err, want)
		}
	}
}

// TestAStartupProbeFailsNoEarlierThanDocker compares when a startup probe fails, if its first attempt is immediate, with when
// Docker considers the container unhealthy.
func TestAStartupProbeFailsNoEarlierThanDocker(t *testing.T) {
	for _, test := range []struct {
		check    string
		period   string
		failures string
	}{
		{"", "30s", "4"}, // Docker: 3 failures after 30, 60 and 90 s
		{"interval: 10s, retries: 5", "10s", "6"},
		{"interval: 10s, retries: 5, start_interval: 1s", "10s", "6"},
		{"interval: 10s, retries: 5, start_period: 30s", "5s", "17"},                     // 80 s
		{"interval: 10s, retries: 1, start_period: 31s, start_interval: 4s", "4s", "12"}, // 41 s
		{"interval: 1s, retries: 1, start_period: 1s, start_interval: 1m", "1m", "2"},    // 2 s
		{"interval: 8000h, retries: 2000000000, start_period: 1ms, start_interval: 10ms", "10ms", "1073741825"},
	} {
		got, err := write(t, "p", "services: {a: {healthcheck: {test: x, "+test.check+"}}}", "")
		if err != nil {
			t.Fatal(err)
		}
		startup, _, _ := strings.Cut(got[strings.Index(got, `"startup"`):], "}\n\n")
		if !strings.Contains(startup, `= "`+test.period+`"`) || !strings.Contains(startup, "failure_threshold = "+test.failures+"\n") {
			t.Errorf("%s became\n%s", test.check, startup)
		}
		check(t, []byte(got))
	}
}

func TestProfilesOfTheEnvironmentAreActive(t *testing.T) {
	text := "services: {a: {profiles: [x, y]}, b: {profiles: [z]}, c: {}}"
	for env, want := range map[string][3]bool{
		"": {false, false, true}, "COMPOSE_PROFILES=y": {true, false, true}, "COMPOSE_PROFILES=q,z": {false, true, true}, "COMPOSE_PROFILES=*": {true, true, true},
	} {
		got, err := write(t, "p", text, env)
		if err != nil {
			t.Fatal(err)
		}
		for i, name := range []string{"a", "b", "c"} {
			if strings.Contains(got, `target "p/`+name+`"`) != want[i] {
				t.Errorf("with %q service %s is wrong in\n%s", env, name, got)
			}
		}
	}
}

func TestOtherFilesAreNotRecognized(t *testing.T) {
	for _, text := range []string{"", "services:", "services: []", "apiVersion: v1\nkind: Service\nservices: {a: {}}", "endpoints: [{url: services}]", "target \"services\" {}"} {
		if compose.Recognizes([]byte(text)) {
			t.Errorf("%q is taken for a compose file", text)
		}
	}
}

// hostile returns files that would take unlimited memory or time.
func hostile() map[string]string {
	bomb := "a0: &a0 [x, x, x, x, x, x, x, x, x, x]\n"
	for i := range 20 {
		n, before := string(rune('b'+i)), string(rune('a'+i))
		if i == 0 {
			before = "a0"
		}
		bomb += n + ": &" + n + " [" + strings.Repeat("*"+before+", ", 9) + "*" + before + "]\n"
	}
	long := strings.Repeat("x", 400<<10)
	lines := "A0=xxxxxxxxxxxxxxxx\n"
	for i := range 40 {
		lines += string(rune('A'+(i+1)%26)) + string(rune('0'+(i+1)/26)) + "=${" + string(rune('A'+i%26)) + string(rune('0'+i/26)) + "}${" + string(rune('A'+i%26)) + string(rune('0'+i/26)) + "}\n"
	}
	return map[string]string{
		"aliases of lists":   bomb + "services: {web: {healthcheck: {test: *t}}}",
		"aliases of a text":  "t: &t " + long + "\nservices: {web: {healthcheck: {test: [CMD" + strings.Repeat(", *t", 100_000) + "]}}}",
		"a long file":        "services: {}\n#" + strings.Repeat("x", compose.MaxBytes),
		"nested lists":       "services: {web: {healthcheck: {test: " + strings.Repeat("[", 200_000) + "}}}",
		"nested mappings":    "services: {web: {healthcheck: " + strings.Repeat("{a: ", 100_000) + "}}",
		"nested variables":   "services: {web: {healthcheck: {test: '" + strings.Repeat("${A:-", 50_000) + "'}}}",
		"many variables":     "services: {web: {healthcheck: {test: '" + strings.Repeat("$B1", 100_000) + "'}}}",
		"many services":      "services:\n" + manyServices(5000),
		"variables in .env:": lines,
	}
}

func manyServices(n int) string {
	var s strings.Builder
	for i := range n {
		s.WriteString("  s" + strings.Repeat("x", i%50) + time.Duration(i).String() + ": {image: a}\n")
	}
	return s.String()
}

func TestHostileFilesAreRefused(t *testing.T) {
	for name, text := range hostile() {
		env := "B1=" + strings.Repeat("x", 100_000)
		if strings.HasSuffix(name, ":") {
			text, env = "services: {a: {}}", text
		}
		if got, err := write(t, "p", text, env); err == nil || len(err.Error()) > 1000 {
			t.Errorf("%s: %d bytes, error %.1000v", name, len(got), err)
		}
	}
}

func FuzzWhatIsWrittenCanBeRead(f *testing.F) {
	text, err := os.ReadFile(filepath.Join("testdata", "shop", "compose.yaml"))
	if err != nil {
		f.Fatal(err)
	}
	f.Add(text, "A=b\nC=\"${A}\"\n")
	f.Add([]byte("services: {a: {restart: no, scale: '2', healthcheck: {test: '${A:-$(x) %{if} \"\\u2028}'}, depends_on: [a, b]}}"), "A='")
	f.Fuzz(func(t *testing.T, text []byte, env string) {
		got, err := write(t, "p", string(text), env)
		if err != nil {
			return
		}
		if diags := config.Syntax(config.Source{Name: "import.hcl", Bytes: []byte(got)}); diags.HasErrors() {
			t.Errorf("%q became\n%s\n%v", text, got, diags)
		}
	})
}
