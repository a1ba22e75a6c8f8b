package config

import (
	"encoding/json"
	"fmt"
	"math/rand/v2"
	"path/filepath"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/hashicorp/hcl/v2"
	"github.com/hashicorp/hcl/v2/hclsyntax"

	"github.com/sonde-probe/sonde/probe"
	"github.com/sonde-probe/sonde/tests/golden"
)

// shout is the configuration of a handler with sensitive fields, whose names are not those of secrets.
type shout struct {
	Greeting string              `hcl:"greeting,optional,sensitive"`
	Words    []string            `hcl:"words,optional,sensitive"`
	Headers  map[string][]string `hcl:"headers,optional,sensitive"`
	Opening  map[string][]string `hcl:"opening,optional"`
}

// pushShout parses files that are about to be pushed, on a machine with everything that they name.
func pushShout(files ...Source) (*Config, Diagnostics) {
	o := toPush()
	o.Handlers["shout"] = Of(func(c shout) (*fake, error) { return &fake{config: c}, nil })
	entry := Schema{Fields: []Field{{Name: "pin", Type: String, Sensitive: true}}}
	vault := grpcHandler()
	vault.Schema.Fields = []Field{{Name: "entry", Type: Object, Block: &entry}}
	o.Handlers["vault"] = vault
	o.Notifiers["siren"] = SettingsOf[struct {
		Tune string `hcl:"tune,sensitive"`
	}](nil)
	o.Env = func(name string) (string, bool) {
		if name == envPrefix+"words" {
			return `{"a": "of this machine", "b": "of this machine"}`, true
		}
		return "of this machine", name != envPrefix+"logins"
	}
	o.IsPushed = func(name string) bool { return name != "config.hcl" }
	own := ownFile + "variable \"own\" {\n  default = \"of the engine\"\n}\nlocals {\n  ours = \"of the engine\"\n}\n"
	return Parse(append([]Source{{"config.hcl", []byte(own)}}, files...), o)
}

// referredTo is what the expressions of the tests refer to, in a pushed file.
const referredTo = `
variable "word" { sensitive = true }
variable "words" {
  type      = map(string)
  sensitive = true
}
variable "plain" { default = "x" }
locals {
  text = "x"
}
`

// forms are expressions of a secret in a pushed file.
var forms = []struct {
	expression string
	how        string // the reason why it is refused; empty if it is accepted
}{
	{`env("T")`, ""},
	{`(env("T"))`, ""},
	{`"${env("T")}"`, ""},
	{`env("T", "")`, ""},
	{`env("T", env("U"))`, ""},
	{`env("T_${local.text}")`, ""},
	{`env(local.text)`, ""},
	{`file("/etc/key")`, ""},
	{`file("/etc/${"key"}")`, ""},
	{`trimspace(file("/etc/key"))`, ""},
	{`sensitive(trimspace(file("/etc/key")))`, ""},
	{`base64encode(env("T"))`, ""},
	{`coalesce(env("T", ""), env("U", ""))`, ""},
	{`try(trimspace(file("/etc/key")), "")`, ""},
	{`var.word`, ""},
	{`var.words.a`, ""},
	{`var.words["a"]`, ""},
	{`var.words[local.text == "x" ? "a" : "b"]`, ""},
	{`var.own`, ""},
	{`local.ours`, ""},
	{`"Bearer ${env("T")}"`, ""},
	{`"basic ${base64encode(env("T"))}"`, ""},
	{`env("STAGE") == "prod" ? env("T") : env("U")`, ""},
	{`fileexists("/etc/key") ? file("/etc/key") : null`, ""},
	{`""`, ""},
	{`nonsensitive("consent=yes")`, ""},
	{`nonsensitive("consent=${local.text}")`, ""},
	{`sensitive(nonsensitive("consent=yes"))`, ""},

	{`"hunter22"`, "everyone who can read etcd would see it"},
	{`"ab"`, "everyone who can read etcd would see it"},
	{`"\u0041\u0042"`, "everyone who can read etcd would see it"},
	{`"${"hunt"}er22"`, "everyone who can read etcd would see it"},
	{"<<-EOT\n   hunter\n   22\n  EOT\n", "everyone who can read etcd would see it"},
	{`12345678`, "everyone who can read etcd would see it"},
	{`sensitive("hunter22")`, "everyone who can read etcd would see it"},
	{`upper("hunter22")`, "everyone who can read etcd would see it"},
	{`join("", ["hunt", "er22"])`, "everyone who can read etcd would see it"},
	{`["hunter22"][0]`, "everyone who can read etcd would see it"},
	{`{ a = "hunter22" }.a`, "everyone who can read etcd would see it"},
	{`env("T", "hunter22")`, "the default of env is in the file: leave it out"},
	{`env(["T", "hunter22"]...)`, "the default of env is in the file: leave it out"},
	{`sensitive(env("T", "hunter22"))`, "the default of env is in the file: leave it out"},
	{`file("key")`, "a relative path names a pushed file"},
	{`trimspace(file("${"key"}"))`, "a relative path names a pushed file"},
	{`file(env("T") == "" ? "key" : "/etc/key")`, "a relative path names a pushed file"},
	{`templatefile("words", { word = env("T") })`, "everyone who can read etcd would see it"},
	{`coalesce(env("T"), "hunter22")`, "everyone who can read etcd would see it"},
	{`env("T") == "" ? "hunter22" : env("T")`, "everyone who can read etcd would see it"},
	{`env("T") == "" ? env("T") : ("hunter22")`, "everyone who can read etcd would see it"},
	{`{ a = "hunter22" }[env("T") == "" ? "b" : "a"]`, "the value of this expression may be in the file"},
	{`[for word in ["hunter22"] : word if env("T") != ""][0]`, "the value of this expression may be in the file"},
	{`"Bearer hunter22${env("T")}"`, "the text beside ${…} is in the file"},
	{`"hunter22 ${env("T")}"`, "the text beside ${…} is in the file"},
	{`"session=${env("T")}"`, "the text beside ${…} is in the file"},
	{`"${env("T")}${env("U")}"`, "the text beside ${…} is in the file"},
	{`"Bearer ${local.text}"`, "local.text may have its text in a pushed file"},
	{`local.text`, "local.text may have its text in a pushed file: write its expression here"},
	{`trimspace(local.text)`, "local.text may have its text in a pushed file"},
	{`var.plain`, `variable "plain" is not sensitive: declare it with sensitive = true`},
}

// places are where a secret can be in a pushed file, and what the error names.
var places = map[string]struct{ text, what string }{
	"a sensitive field":           {inShout(`greeting = %s`), "greeting"},
	"a list":                      {inShout(`words = [env("T"), %s]`), "words"},
	"an entry of a map":           {inShout(`opening = { X-Team = "shop", Authorization = %s }`), "Authorization"},
	"a list in a map":             {inShout(`opening = { X-Team = ["shop"], X-Api-Key = [env("T"), %s] }`), "X-Api-Key"},
	"an entry of a sensitive map": {inShout(`headers = { X-Team = "shop", Cookie = %s }`), "Cookie"},
	"an object in a call":         {inShout(`opening = merge({ X-Team = "shop" }, { Cookie = %s })`), "Cookie"},
	"an object in a condition":    {inShout(`opening = env("T") == "" ? {} : { Cookie = %s }`), "Cookie"},
	"a sensitive object":          {inProbe(`vault { entry = { pin = %s } }`), "pin"},
	"a block of a plugin":         {inProbe("grpc {\n port = 80\n login {\n user = \"probe\"\n password = %s\n }\n }"), "password"},
	"a receiver":                  {"notify \"oncall\" {\n targets = [\"web\"]\n siren {\n tune = %s\n }\n}\n" + pushedTargets, "tune"},
	"a local":                     {"locals {\n  db_password = %s\n}\n" + pushedTargets, "db_password"},
	"an object in a local":        {"locals {\n  logins = [{ user = \"probe\", password = %s }]\n}\n" + pushedTargets, "password"},
	"an argument of sensitive":    {"locals {\n  greeting = [for i in [1] : sensitive(%s)]\n}\n" + pushedTargets, "greeting"},
	"an object in sensitive":      {"locals {\n  greeting = sensitive({ of = %s })\n}\n" + pushedTargets, "greeting"},
	"a loop without elements":     {strings.Replace(inShout(`greeting = %s`), "address", "for_each = toset([])\n  address", 1) + pushedTargets, "greeting"},
	"a dynamic block of none":     {dynamicShout, "greeting"},
}

func inProbe(handler string) string {
	const plugin = "plugin \"grpc\" {\n  source         = \"/etc/grpc.wasm\"\n  allow_unpinned = true\n}\n"
	return plugin + "target \"app\" {\n  address = \"10.0.0.4\"\n  probe \"readiness\" {\n    " + handler + "\n  }\n}\n"
}

func inShout(line string) string { return inProbe("shout {\n      " + line + "\n    }") }

const dynamicShout = pushedTargets + `
target "app" {
  address = "10.0.0.4"
  probe "readiness" {
    tcp { port = 80 }
  }
  dynamic "probe" {
    for_each = []
    iterator = one
    labels   = ["startup"]
    content {
      dynamic "shout" {
        for_each = [1]
        content {
          greeting = %s
        }
      }
    }
  }
}
`

// checkForm checks what is reported of a form: one error that says what is refused and how to write it, and not the secret.
func checkForm(t *testing.T, name, what, how string, diags Diagnostics) {
	t.Helper()
	text := written(t, diags, false)
	errors, _ := diags.Count()
	isRefused := strings.Contains(text, "error: "+what+" is a secret, which a pushed file must not contain") && strings.Contains(text, how)
	if how == "" && errors > 0 || how != "" && (errors != 1 || !isRefused) || strings.Contains(text, "hunter22") {
		t.Errorf("%s: got\n%s\nwant an error: %q", name, text, how)
	}
}

func TestOnlySecretsThatEnginesReadArePushed(t *testing.T) {
	place := places["a sensitive field"]
	for _, form := range forms {
		_, diags := pushShout(Source{"fleet:/web.hcl", fmt.Appendf(nil, place.text+referredTo, form.expression)})
		checkForm(t, form.expression, place.what, form.how, diags)
	}
}

func TestSecretsAreFoundWhereverTheyAre(t *testing.T) {
	for name, place := range places {
		for _, form := range []struct{ expression, how string }{
			{`env("T")`, ""}, {`var.words["a"]`, ""}, {`"Bearer ${env("T")}"`, ""}, {`nonsensitive("consent=yes")`, ""},
			{`"hunter22"`, "everyone who can read etcd would see it"}, {`local.text`, "local.text may have"}, {`env("T", "hunter22")`, "leave it out"},
			{`sensitive("hunter22")`, "everyone who can read etcd would see it"},
		} {
			_, diags := pushShout(Source{"fleet:/web.hcl", fmt.Appendf(nil, place.text+referredTo, form.expression)})
			checkForm(t, name+", "+form.expression, place.what, form.how, diags)
		}
	}
}

func TestOnlySecretsThatEnginesReadArePushedInJSON(t *testing.T) {
	for _, form := range forms {
		value, _ := json.Marshal("${" + form.expression + "}")
		if strings.HasPrefix(form.expression, `"`) { // a template
			value = []byte(form.expression[:1] + strings.ReplaceAll(form.expression[1:len(form.expression)-1], `"`, `\"`) + `"`)
		}
		if strings.HasPrefix(form.expression, "<<") {
			continue
		}
		for what, handler := range map[string]string{
			"greeting": `"shout": {"greeting": %s}`, "words": `"shout": {"words": [%s]}`, "Cookie": `"shout": {"opening": {"X-Team": "shop", "Cookie": [%s]}}`,
			"pin": `"vault": {"entry": {"pin": %s}}`,
		} {
			text := `{"target": {"web": {"address": "10.0.0.4", "probe": {"readiness": {` + fmt.Sprintf(handler, value) + `}}}}}`
			_, diags := pushShout(Source{"fleet:/web.hcl.json", []byte(text)}, Source{"fleet:/more.hcl", []byte(referredTo)})
			checkForm(t, string(value), what, form.how, diags)
		}
	}
}

// The messages, and what is accepted beside secrets, are in golden files.
func TestSecretsInPushedFilesAreShownWithACure(t *testing.T) {
	for _, s := range configurations(t, "testdata/pushed/*") {
		t.Run(filepath.Base(s.Name), func(t *testing.T) {
			name := s.Name
			s.Name = "fleet:/" + filepath.Base(s.Name)
			_, diags := pushShout(s)
			text := written(t, diags, false)
			golden.Check(t, name+".golden", text, *rewrite)
			if strings.Contains(text, "hunter") {
				t.Error("a secret was shown")
			}
		})
	}
}

// expressions makes expressions at random. Each text in them begins with lit.
type expressions struct{ *rand.Rand }

// next returns an expression of a string, whose operands have their own.
func (g expressions) next(depth int) string {
	if depth == 0 {
		return []string{`env("A")`, `env("B", "")`, `var.word`, `file("/etc/key")`, `"lit"`, `local.text`}[g.IntN(6)]
	}
	patterns := []string{
		`(%s)`, `"${%s}"`, `"Bearer ${%s}"`, `"lit${%s}"`, `trimspace(%s)`, `base64decode(base64encode(%s))`, `sensitive(%s)`,
		`env("A", %s)`, `try(%s, %s)`, `coalesce(%s, %s)`, `join(%s, [%s])`, `(env("A") == %s ? %s : %s)`,
		`{ a = %s, b = %s }[env("B", "") == "" ? "a" : "b"]`, `[for x in [%s, %s] : x][0]`, `keys({ lit = %s })[0]`,
	}
	pattern := patterns[g.IntN(len(patterns))]
	var operands []any
	for range strings.Count(pattern, "%s") {
		operands = append(operands, g.next(depth-1))
	}
	return fmt.Sprintf(pattern, operands...)
}

// The law of the rule: what is pushed contains no text that is the secret of an engine.
func TestNoTextOfAPushedFileIsTheSecretOfAnEngine(t *testing.T) {
	const files = 200
	g := expressions{rand.New(rand.NewPCG(1, 1))}
	accepted, exposed := 0, 0
	for range files {
		expression := fmt.Sprintf("try(%s, \"\")", g.next(1+g.IntN(3)))
		text := strings.ReplaceAll(fmt.Sprintf(inShout(`greeting = %s`), expression)+referredTo, `text = "x"`, `text = "lit"`)
		c, diags := pushShout(Source{"fleet:/web.hcl", []byte(text)})
		if diags.HasErrors() {
			exposed++
			continue
		}
		accepted++
		handler := c.Set[probe.ID{Target: "app", Kind: probe.Readiness}].Handler.(*fake)
		if secret := handler.config.(shout).Greeting; strings.Contains(secret, "lit") {
			t.Errorf("%s is pushed, and %q on an engine", expression, secret)
		}
	}
	if accepted < files/10 || exposed < files/10 {
		t.Errorf("%d of %d are accepted, and %d are not", accepted, files, exposed)
	}
}

func TestURLsWithPasswordsAreFoundInTexts(t *testing.T) {
	for text, is := range map[string]bool{
		`"postgres://probe:hunter22@db/shop"`:                                true,
		`"postgres://probe:hunter22@${local.text}/shop"`:                     true,
		`"postgres://${local.text}:hunter22@db/shop"`:                        true,
		`"postgres://probe:hunter22${env("T")}@db"`:                          true,
		`lower("https://probe:hunter22@db/")`:                                true,
		`"https://probe:\u0068unter22@db/"`:                                  true,
		`"postgres://probe:${env("T")}@db/shop"`:                             false,
		`"postgres://${env("U")}:${env("T")}@db/shop"`:                       false,
		`"http://10.0.0.9:80/a@b"`:                                           false,
		`sensitive(env("T"))`:                                                false,
		`nonsensitive("https://probe:hunter22@db/")`:                         false,
		`"https://probe@db/"`:                                                false,
		`trimspace(file("/etc/key"))`:                                        false,
		`[for u in ["ftp://anonymous:anonymous@${local.text}/"] : lower(u)]`: true,
	} {
		_, diags := pushShout(Source{"fleet:/web.hcl", fmt.Appendf(nil, "locals {\n  address = %s\n}\n"+pushedTargets+referredTo, text)})
		found := written(t, diags, false)
		want := "error: address has a URL with a password, which a pushed file must not contain\n  fleet:/web.hcl:2:13"
		if strings.Contains(found, want) != is || diags.HasErrors() != is || strings.Contains(found, "hunter22") {
			t.Errorf("%s: got\n%s", text, found)
		}
	}
}

func TestNamesSayWhatIsSecret(t *testing.T) {
	names := []string{"db_password", "PGPASSWORD", "X-Api-Key", "authToken", "Authorization", "client_secret", "passwd"}
	others := []string{"", "user", "token_file", "secret_name", "X-Token-Id", "key", "monkey", "tokens", "passwordless_url"}
	for _, name := range slices.Concat(names, others) {
		if isSecretName(name) != slices.Contains(names, name) {
			t.Errorf("%q is a secret: %v", name, isSecretName(name))
		}
	}
}

func TestTheSecretOfAVariableThatIsDeclaredTwiceIsMasked(t *testing.T) {
	const line = `variable "api_token" { default = "hunter22" }` + "\n"
	_, diags := parse(t, line+line, Options{})
	if text := written(t, diags, false); !strings.Contains(text, "is declared twice") || strings.Contains(text, "hunter22") {
		t.Errorf("got %s", text)
	}
}

func TestErrorsAboutPartsOfASensitiveListShowNothingOfIt(t *testing.T) {
	for _, text := range []string{
		`engine { metric_labels = sensitive(["hunter 22"]) }`,
		`group "g" { match = [sensitive("hunter 22")] }`,
		"group \"g\" {\nmembers = [\"*\"]\nweight_label = sensitive(\"hunter 22\")\n}",
	} {
		_, diags := parse(t, text, Options{})
		if shown := written(t, diags, false); !strings.Contains(shown, "is not valid") || strings.Contains(shown, "hunter") {
			t.Errorf("%s: got %s", text, shown)
		}
	}
}

// Whoever may push a file must not keep an engine busy with it.
func TestTheSearchForSecretsIsLinearInCalls(t *testing.T) {
	text := []byte("concat(" + strings.Repeat("[nonsensitive(1)],\n", 20_000) + "[])")
	x, diags := hclsyntax.ParseExpression(text, "a.hcl", hcl.InitialPos)
	if diags.HasErrors() {
		t.Fatal(diags)
	}
	s := secretSearch{e: newEvaluator(), value: x}
	s.e.texts.byName["a.hcl"] = text
	began := time.Now()
	s.search()
	if took := time.Since(began); took > time.Second {
		t.Errorf("20,000 calls take %v", took)
	}
}
