package config

import (
	"encoding/json"
	"fmt"
	"math/rand/v2"
	"regexp"
	"strings"
	"testing"

	"github.com/sonde-probe/sonde/probe"
	"github.com/sonde-probe/sonde/tests/tier"
)

// shout is the configuration of a handler with sensitive fields, whose names are not those of secrets.
type shout struct {
	Greeting string              `hcl:"greeting,optional,sensitive"`
	Headers  map[string][]string `hcl:"headers,optional,sensitive"`
	Opening  map[string][]string `hcl:"opening,optional"`

	A string `hcl:"a,optional,sensitive"`
	B string `hcl:"b,optional,sensitive"`
	C string `hcl:"c,optional,sensitive"`
	D string `hcl:"d,optional,sensitive"`
	E string `hcl:"e,optional,sensitive"`
	F string `hcl:"f,optional,sensitive"`
	G string `hcl:"g,optional,sensitive"`
	H string `hcl:"h,optional,sensitive"`
	I string `hcl:"i,optional,sensitive"`
	J string `hcl:"j,optional,sensitive"`
}

// fields are the values of the fields from A on.
func (s shout) fields() []string { return []string{s.A, s.B, s.C, s.D, s.E, s.F, s.G, s.H, s.I, s.J} }

func withShout(o Options) Options {
	o.Handlers["shout"] = Of(func(c shout) (*fake, error) { return &fake{config: c}, nil })
	return o
}

// pushTexts parses what a pusher would push: a target with a line in its shout block, and more blocks. In JSON, the line
// is a name and an expression.
func pushTexts(o Options, loop, name, expression, more string, inJSON bool) (*Config, string) {
	o = withShout(o)
	o.IsPushed = func(name string) bool { return strings.HasPrefix(name, "fleet:/") }
	web := Source{"fleet:/web.hcl", fmt.Appendf(nil, "target \"web\" {\n  %s\n  address = \"10.0.0.4\"\n  probe \"readiness\" {\n    shout {\n      %s = %s\n    }\n  }\n}\n", loop, name, expression)}
	if inJSON {
		quoted, err := json.Marshal("${" + expression + "}")
		if err != nil {
			panic(err)
		}
		web = Source{"fleet:/web.hcl.json", fmt.Appendf(nil, `{"target": {"web": {"address": "10.0.0.4", "probe": {"readiness": {"shout": {%q: %s}}}}}}`, name, quoted)}
	}
	c, diags := Parse([]Source{{"config.hcl", []byte(ownFile)}, web, {"fleet:/more.hcl", []byte(more)}}, o)
	var text strings.Builder
	if err := diags.WriteText(&text, false); err != nil {
		panic(err)
	}
	return c, text.String()
}

const inFiles = "in the files that are pushed"

func TestTextsThatASensitiveFieldCanBecomeAreErrors(t *testing.T) {
	tier.Slow(t)
	const more = `
locals {
  perHost = { a = "s3cret-a", b = "s3cret-b" }
  hosts   = { a = { user = "a", key = { word = "hunter22" } }, b = { user = "b", key = { word = env("B") } } }
  allOf   = [for host, word in local.perHost : { host = host, word = word }]
  chain   = local.link
  link    = { one = env("ONE", "hunter22"), two = "two" }
  users   = { a = { user = "a", word = env("A") }, b = { user = "b", word = env("B") } }
  empty   = { a = "", b = null, c = env("C") }
  stage   = env("STAGE", "dev") == "prod" ? { url = "https://prod", word = env("P") } : { url = "https://dev", word = env("D") }
}
variable "given" {
  default = "changed"
}
`
	for _, c := range []struct {
		expression string
		isError    bool
	}{
		{`env("T", "hunter22")`, true},
		{`try(env("T"), "hunter22")`, true},
		{`try(local.perHost.none, env("T"), "hunter22")`, true},
		{`coalesce(env("T"), "hunter22")`, true},
		{`coalesce([env("T"), "hunter22"]...)`, true},
		{`env("T") == "" ? "hunter22" : env("T")`, true},
		{`env("T") == "" ? env("T") : ("hunter22")`, true},
		{`!(env("T") == "") && env("U") != "" ? env("T") : "hunter22"`, true},
		{`env("T") == "" ? 12345678 : 87654321`, true},
		{`local.perHost[env("HOST")]`, true},
		{`local.perHost["${env("HOST")}"]`, true},
		{`lookup(local.perHost, env("HOST"), "")`, true},
		{`lookup({ a = env("A") }, env("HOST"), "hunter22")`, true},
		{`element(["hunter22", "hunter23"], strlen(env("N")))`, true},
		{`["hunter22", "hunter23"][strlen(env("N"))]`, true},
		{`local.hosts[env("HOST")].key.word`, true},
		{`local.hosts[env("HOST")]["key"]["word"]`, true},
		{`values(local.hosts)[strlen(env("N"))].key.word`, true},
		{`(local.allOf[*].word)[strlen(env("N"))]`, true},
		{`[for h in local.allOf : h.word if h.host == env("HOST")][0]`, true},
		{`one([for h in local.allOf : h.word if h.host == env("HOST")])`, true},
		{`length([for h in local.allOf : h if h.host == env("HOST")]) == 1 ? env("A") : "hunter22"`, true},
		{`{ for h in local.allOf : h.host => h.word }[env("HOST")]`, true},
		{`{ for h in local.allOf : env("PREFIX") => h.word... }["a"][0]`, true},
		{`{ for host, word in local.perHost : host => word if host == env("HOST") }["a"]`, true},
		{`{ for host, word in local.perHost : host => [env("T"), word][strlen(env("N"))] }["a"]`, true},
		{`{ (env("HOST")) = "hunter22" }["a"]`, true},
		{`compact([env("A"), env("B"), "hunter22"])[0]`, true},
		{`merge({ word = "hunter22" }, jsondecode(env("MORE"))).word`, true},
		{`local.chain.one`, true},
		{`upper(local.chain.one)`, true},
		{`base64encode("probe:${local.chain.one}")`, true},
		{`format("Bearer %s", env("T", "hunter22"))`, true},
		{`sensitive("Bearer ${env("TOKEN", "x")}")`, true},
		{`"Bearer ${env("TOKEN", "x")}"`, true},
		{`"Bearer %{ if env("T") == "" }hunter22%{ else }${env("T")}%{ endif }"`, true},
		{`"%{ for t in [env("T", "hunter22")] }${t}%{ endfor }"`, true},
		{`templatefile("words", { word = env("T", "hunter22") })`, true},
		{`templatefile("choice", { word = "hunter22", own = env("T") })`, true},
		{`nonsensitive(sensitive(env("T", "hunter22")))`, true},
		{`regex("${env("HOST")}=(.*)", "a=hunter22")[0]`, true},
		{`regexall("${env("HOST")}=(.*)", "a=hunter22")[0][0]`, true},
		{`[for found in regexall("${env("HOST")}=(.*)", "a=hunter22") : found[0]][0]`, true},
		{`substr("ahunter22", strlen(env("HOST")), -1)`, true},
		{`trim("hunter22", env("PREFIX"))`, true},
		{`trimprefix("hunter22", env("PREFIX"))`, true},
		{`trimsuffix("hunter22", env("PREFIX"))`, true},
		{`indent(strlen(env("N")), "hunter22")`, true},
		{`split(env("U"), "hunter22,hunter23")[0]`, true},
		{`{ for h in split(",", env("HOST")) : h => (h == "b" ? "hunter22" : env("T")) }[env("HOST")]`, true},
		{`{ for h in split(",", env("HOST")) : h => { word = "hunter22" } }.a.word`, true},
		{`{ for h in split(",", env("HOST")) : h => { word = "hunter22" }... }["a"][0].word`, true},
		{`lookup({ for h in split(",", env("HOST")) : h => env("T", "hunter22") }, "a", "")`, true},
		{`{ for k, v in { for h in split(",", env("HOST")) : h => h } : k => (k == "b" ? "hunter22" : env("T")) }["a"]`, true},
		{`([for h in split(",", env("HOST")) : { word = h == "b" ? "hunter22" : env("T") }][*].word)[0]`, true},
		{`element(concat([for h in split(",", env("HOST")) : env("T", "hunter22")], [env("T")]), 0)`, true},
		{`one([for h in split(",", env("HOST")) : h == "b" ? "hunter22" : env("T") if h != "c"])`, true},
		{`"%{ for h in split(",", env("HOST")) }${h == "b" ? "hunter22" : env("T")}%{ endfor }"`, true},
		{`var.given`, true},
		{`upper(var.given)`, true},
		{`"Bearer ${var.given}"`, true},
		{`"Bearer ${env("STAGE") == "prod" ? "hunter22" : "hunter23"}"`, true},
		{`"${env("USER")}:${env("STAGE") == "prod" ? "hunter22" : "hunter23"}"`, true},
		{`"x-${coalesce(env("STAGE") == "prod" ? "hunter22" : "hunter23", env("T"))}-${env("U")}"`, true},
		{`"x-${env("T") == "" ? (env("STAGE") == "prod" ? "hunter22" : "hunter23") : env("T")}-${env("U")}"`, true},
		{`"x-${local.perHost[env("HOST")]}-${env("U")}"`, true},

		{`local.chain.two == "x" ? env("A") : env("B")`, false},
		{`{ for h in split(",", env("HOST")) : h => { user = "probe", word = env("T") } }[env("HOST")].word`, false},
		{`{ for h in split(",", env("HOST")) : h => { user = "probe", word = env("T") } }["a"].word`, false},
		{`([for h in split(",", env("HOST")) : { user = "probe", word = env("T") }][*].word)[0]`, false},
		{`join(",", [for h in split(",", env("HOST")) : "${h}:${env("T")}"])`, false},
		{`length([for h in split(",", env("HOST")) : "x"]) == 1 ? env("A") : env("B")`, false},
		{`"%{ for h in split(",", env("HOST")) }${h}-%{ endfor }"`, false},
		{`regex("${env("HOST", "")}(.*)", file("/etc/key"))[0]`, false},
		{`regex("${env("HOST", "x")}(.*)", "${env("HOST")}${env("T")}")[0]`, false},
		{`substr(env("T"), strlen(env("PREFIX", "token:")), -1)`, false},
		{`slice([env("A"), env("B"), env("C")], strlen(env("N")), 2)[0]`, false},
		{`"Bearer ${env("TOKEN")}"`, false},
		{`sensitive("Bearer ${env("TOKEN")}")`, false},
		{`"sk_live_${env("TOKEN")}"`, false},
		{`sensitive("https://h/${env("STAGE") == "prod" ? "prod" : "dev"}/${env("T")}")`, false},
		{`"https://h/${env("STAGE") == "prod" ? "prod" : env("STAGE") == "test" ? "test" : "dev"}/${env("T")}"`, false},
		{`sensitive("postgres://probe:${env("T")}@db.internal:5432/shop?sslmode=disable")`, false},
		{`"${env("SCHEME", "Bearer")} ${env("TOKEN")}"`, false},
		{`"Basic ${base64encode("${env("USER", "probe")}:${env("PASSWORD")}")}"`, false},
		{`"Basic ${base64encode("probe${env("STAGE") == "" ? "-a" : "-b"}:${env("PASSWORD")}")}"`, false},
		{`env("TOKEN", "")`, false},
		{`try(trimspace(file("/etc/key")), "")`, false},
		{`try(file("/etc/key"), env("TOKEN"), null)`, false},
		{`coalesce(env("A", ""), env("B", ""))`, false},
		{`file(env("KEY_FILE", "/etc/key"))`, false},
		{`file("/etc/${env("HOST", "all")}/key")`, false},
		{`env("TOKEN_${env("STAGE", "prod")}")`, false},
		{`env(env("NAME", "TOKEN"))`, false},
		{`env("STAGE", "prod") == "prod" ? env("A") : env("B")`, false},
		{`contains(["prod", "dev"], env("STAGE", "prod")) ? env("A") : env("B")`, false},
		{`local.users[env("HOST", "a")].word`, false},
		{`local.empty[env("HOST")]`, false},
		{`local.stage.word`, false},
		{`[for u in values(local.users) : u.word if u.user == env("USER")][0]`, false},
		{`[for u in values(local.users) : u if u.user == env("USER")][0].word`, false},
		{`join("", values(local.users)[*].word)`, false},
		{`length([for h in local.allOf : h if h.host == env("HOST")]) == 1 ? env("A") : env("B")`, false},
		{`split(env("SEPARATOR", ","), env("TOKENS"))[0]`, false},
		{`trimprefix(env("TOKEN"), env("PREFIX", "Bearer "))`, false},
		{`lookup(local.users, env("HOST"), { word = env("T") }).word`, false},
		{`"${env("TOKEN")}-${var.given}"`, false},
		{`try(var.given == "x", false) ? env("A") : env("B")`, false},
	} {
		for _, inJSON := range []bool{false, true} {
			_, got := pushTexts(withChoice(), "", "greeting", c.expression, more, inJSON)
			isReported := strings.Contains(got, "greeting is a secret, and a text that it can become is "+inFiles)
			if c.isError != isReported || strings.Contains(got, "hunter22") || !isReported && strings.Contains(got, "error:") {
				t.Errorf("%s, JSON %v: got\n%s\nwant an error: %v", c.expression, inJSON, got, c.isError)
			}
		}
	}
}

func TestTextsThatASecretCanBecomeInALoopAreErrors(t *testing.T) {
	const more = `
locals {
  sets  = { a = { one = "hunter22" }, of = { one = env("T") } }
  words = { one = env("T"), two = env("U") }
}
`
	for _, c := range []struct {
		loop, expression string
		isError          bool
	}{
		{`for_each = { a = env("T", "hunter22") }`, `each.value`, true},
		{`for_each = { a = { one = env("T", "hunter22"), two = env("T") } }`, `each.value.one`, true},
		{`for_each = local.sets[env("HOST")]`, `each.value`, true},
		{`for_each = toset([env("T", "hunter22")])`, `each.key`, true},
		{`for_each = { (env("HOST")) = "hunter22" }`, `each.value`, true},
		{`for_each = { for word in ["hunter22"] : "a" => word if env("HOST") == "a" }`, `each.value`, true},
		{`for_each = { a = "b" }`, `local.sets[env("HOST")].one`, true},
		{`for_each = { a = "b" }`, `jsondecode(env("J", "{\"one\": \"hunter22\"}")).one`, true},
		{`for_each = { a = "b" }`, `values(zipmap(["one"], [env("T", "hunter22")]))[0]`, true},
		{`for_each = { a = "b" }`, `sort([env("T", "hunter22"), env("U")])[0]`, true},
		{`for_each = { a = "b" }`, `regex("(.*)", env("T", "hunter22"))[0]`, true},

		{`for_each = { a = { one = env("T", "hunter22"), two = env("T") } }`, `each.value.two`, false},
		{`for_each = local.words`, `each.value`, false},
		{`for_each = toset(["one", "two"])`, `local.words[each.key]`, false},
		{`for_each = toset(["one", "two"])`, `env("TOKEN_${each.key}")`, false},
		{`for_each = toset(["one", "two"])`, `file("/etc/${env("HOST")}/key")`, false},
		{`for_each = toset(["one", "two"])`, `each.key == "one" ? env("T") : local.words[each.key]`, false},
	} {
		o := withChoice()
		env := o.Env
		o.Env = func(name string) (string, bool) {
			if name == "J" {
				return `{"one": "of this machine"}`, true
			}
			return env(name)
		}
		_, got := pushTexts(o, c.loop, "greeting", c.expression, more, false)
		isReported := strings.Contains(got, "greeting is a secret, and a text that it can become is "+inFiles)
		if c.isError != isReported || !isReported && strings.Contains(got, "error:") {
			t.Errorf("%s, %s: got\n%s\nwant an error: %v", c.loop, c.expression, got, c.isError)
		}
	}
	own := "variable \"own\" {\n  sensitive = true\n  default   = env(\"T\", \"hunter22\")\n}\n"
	if _, got := pushTexts(withChoice(), "", "greeting", "var.own", own, false); !strings.Contains(got, "own is a secret, and") {
		t.Errorf("the default of a sensitive variable: got\n%s", got)
	}
}

// A default is what it is on each engine, and not on the machine that pushes it.
func TestDefaultsOfVariablesAreLookedAtAsOnEachEngine(t *testing.T) {
	const tokens = "locals {\n  tokens = { a = env(\"T\"), b = \"hunter22\" }\n}\n"
	for _, c := range []struct {
		expression, variable, more string
		isError                    bool
	}{
		{`var.v == "prod" ? "hunter22" : env("T")`, `default = env("STAGE", "dev")`, "", true},
		{`var.v`, `default = env("STAGE") == "prod" ? "hunter22" : ""`, "", true},
		{`var.v.word`, "type    = object({ word = string, port = optional(number, 80) })\n  default = { word = env(\"T\", \"hunter22\") }", "", true},
		{`var.v.a`, "type    = object({ a = string })\n  default = { for h in split(\",\", env(\"HOST\")) : h => h == \"a\" ? \"hunter22\" : env(\"T\") }", "", true},
		{`try(local.tokens[var.v], env("T"))`, `default = env("HOST")`, tokens, true},

		{`var.v`, `default = env("TOKEN")`, "", false},
		{`var.v`, `default = sensitive(env("TOKEN"))`, "", false},
		{`var.v`, `default = sensitive(trimspace(file("/etc/key")))`, "", false},
		{`var.v[0]`, "type    = list(string)\n  default = [env(\"TOKEN\")]", "", false},
		{`var.v == "prod" ? env("U") : env("T")`, `default = env("STAGE", "dev")`, "", false},
		{`sensitive("https://h/${var.v}/${env("T")}")`, `default = env("STAGE") == "prod" ? "prod" : "dev"`, "", false},
	} {
		for _, isGiven := range []bool{false, true} {
			o := withChoice()
			env := o.Env
			o.Env = func(name string) (string, bool) {
				if strings.HasPrefix(name, envPrefix) && !isGiven {
					return "", false
				}
				return env(name)
			}
			if isGiven && strings.Contains(c.variable, "type") {
				continue // what is given has another type
			}
			_, got := pushTexts(o, "", "greeting", c.expression, "variable \"v\" {\n  "+c.variable+"\n}\n"+c.more, false)
			isReported := strings.Contains(got, "greeting is a secret, and a text that it can become is "+inFiles)
			if c.isError != isReported || !isReported && strings.Contains(got, "error:") {
				t.Errorf("%s with %s, given %v: got\n%s\nwant an error: %v", c.expression, c.variable, isGiven, got, c.isError)
			}
		}
	}
}

// Elements of a loop whose probes are equal on the machine that pushes may differ on engines.
func TestTextsOfElementsThatAreEqualHereAreErrors(t *testing.T) {
	const more = `
locals {
  tokens = { a = { prod = env("A") }, b = { prod = "hunter22" } }
  envs   = { a = { prod = env("A") }, b = { prod = env("B") } }
}
`
	for expression, isError := range map[string]bool{
		`lookup(local.tokens[each.key], env("STAGE"), env("T"))`:                   true,
		`each.key == "b" && env("STAGE") == "prod" ? "hunter22" : env("T")`:        true,
		`lookup(local.envs[each.key], env("STAGE"), env("T"))`:                     false,
		`each.key == "b" && env("STAGE") == "prod" ? env("B") : env("T")`:          false,
		`env("STAGE") == "prod" ? env("TOKEN_${each.key}") : "Bearer ${env("T")}"`: false,
	} {
		_, got := pushTexts(withChoice(), `for_each = toset(["a", "b"])`, "greeting", expression, more, false)
		isReported := strings.Contains(got, "greeting is a secret, and a text that it can become is "+inFiles+"\n  fleet:/web.hcl:6:18")
		if isError != isReported || strings.Count(got, "error:") > 1 || !isReported && strings.Contains(got, "error:") {
			t.Errorf("%s: got\n%s\nwant an error: %v", expression, got, isError)
		}
	}
}

// Engines may have elements of a for_each that the machine which pushes it lacks.
func TestSecretsInElementsThatThisMachineDoesNotHaveAreErrors(t *testing.T) {
	const more = `
locals {
  tokens = { b = "hunter22", c = env("C") }
  envs   = { b = env("B"), c = env("C") }
  hosts  = { b = { user = "probe", word = env("B") }, c = { user = "probe", word = env("C") } }
  site   = "b"
}
`
	const filter = `for_each = { for name, host in local.hosts : name => host if name == env("HOST") }`
	for _, c := range []struct {
		loop, expression string
		isError          bool
	}{
		{`for_each = { for host, token in local.tokens : host => token if host == env("HOST") }`, `each.value`, true},
		{`for_each = { for host, token in local.tokens : host => host if host == env("HOST") }`, `local.tokens[each.value]`, true},
		{`for_each = env("STAGE") == "prod" ? { a = "hunter22" } : {}`, `each.value`, true},
		{`for_each = env("STAGE") == "prod" ? toset(["b"]) : toset([])`, `local.tokens[each.key]`, true},
		{`for_each = toset([for host in ["b"] : host if host == env("HOST")])`, `local.tokens[each.key]`, true},
		{`for_each = toset([])`, `each.key == "b" ? "hunter22" : env("T")`, true},
		{`for_each = {}`, `env(each.value, "hunter22")`, true},
		{`for_each = toset([])`, `sensitive("hunter22")`, true},
		{filter, `each.value.user`, true},

		{filter, `each.value.word`, false},
		{filter, `"${each.value.user}:${each.value.word}"`, false},
		{filter, `local.envs[each.key]`, false},
		{`for_each = { for host, token in local.envs : host => token if host == env("HOST") }`, `each.value`, false},
		{`for_each = toset([for host in ["b"] : host if host == env("HOST")])`, `local.envs[each.key]`, false},
		{`for_each = toset([for host in ["b"] : host if host == env("HOST")])`, `env("TOKEN_${each.key}")`, false},
		{`for_each = toset(compact(split(",", env("N"))))`, `"Bearer ${env(each.key)}"`, false},
		{`for_each = toset([])`, `each.key == "b" ? env("B") : file("/etc/${each.key}/key")`, false},
		{`for_each = { a = { one = "x", two = env("T") } }`, `"${each.value.one}/${each.value.two}"`, false},
		{`for_each = { for name, site in { x = "b", y = "c" } : name => site if site == local.site }`, `"${each.value}/${env("T")}"`, false},
	} {
		_, got := pushTexts(withChoice(), c.loop, "greeting", c.expression, more+strings.Replace(pushedTargets, "web", "other", 1), false)
		isReported := strings.Contains(got, "greeting is a secret, ") && strings.Contains(got, inFiles+"\n  fleet:/web.hcl:6:18")
		if c.isError != isReported || strings.Count(got, "error:") > 1 || !isReported && strings.Contains(got, "error:") {
			t.Errorf("%s, %s: got\n%s\nwant an error: %v", c.loop, c.expression, got, c.isError)
		}
	}
}

func TestSecretsInDynamicBlocksThatThisMachineDoesNotHaveAreErrors(t *testing.T) {
	const more = `
locals {
  tokens = { a = "hunter22", b = env("B") }
  envs   = { a = env("A"), b = env("B") }
}
target "other" {
  %s
  address = "10.0.0.4"
  probe "readiness" {
    tcp { port = 80 }
  }
  dynamic "probe" {
    for_each = %s
    iterator = each
    labels   = ["startup"]
    content {
      period = "5s"
      dynamic "shout" {
        for_each = [env("PORT")]
        content {
          greeting = %s
        }
      }
    }
  }
}
`
	for _, c := range []struct {
		each, expression string
		isError          bool
	}{
		{`env("STAGE") == "prod" ? [1] : []`, `"hunter22"`, true},
		{`env("STAGE") == "prod" ? [1] : []`, `sensitive("hunter22")`, true},
		{`env("STAGE") == "prod" ? [1] : []`, `local.tokens.a`, true},
		{`env("STAGE") == "prod" ? ["hunter22"] : []`, `each.value`, true},
		{`[for name in ["a", "b"] : name if name == env("NAME")]`, `local.tokens[each.value]`, true},
		{`{ for name, token in local.tokens : name => token if name == env("NAME") }`, `each.value`, true},
		{`[]`, `env("T", "hunter22")`, true},

		{`env("STAGE") == "prod" ? [1] : []`, `env("T")`, false},
		{`env("STAGE") == "prod" ? ["a"] : []`, `local.envs[each.value]`, false},
		{`[for name in ["a", "b"] : name if name == env("NAME")]`, `env("TOKEN_${each.value}")`, false},
		{`{ for name, token in local.envs : name => token if name == env("NAME") }`, `each.value`, false},
		{`[]`, `"Bearer ${each.value}-${shout.value}"`, false},
	} {
		for _, loop := range []string{"", `for_each = { one = env("ONE") }`, `for_each = toset([])`} {
			_, got := pushTexts(withChoice(), "", "greeting", `env("T")`, fmt.Sprintf(more, loop, c.each, c.expression), false)
			isReported := strings.Contains(got, "greeting is a secret, ") && strings.Contains(got, inFiles+"\n  fleet:/more.hcl:21:22")
			if c.isError != isReported || strings.Count(got, "error:") > 1 || !isReported && strings.Contains(got, "error:") {
				t.Errorf("%s, dynamic %s, %s: got\n%s\nwant an error: %v", loop, c.each, c.expression, got, c.isError)
			}
		}
	}
}

func TestTextsThatAreSecretByTheirNameAreErrors(t *testing.T) {
	for _, c := range []struct {
		line, more string
		want       string // what is reported; empty for nothing
	}{
		{line: `opening = { Authorization = env("T", "hunter22") }`, want: "Authorization is a secret, and"},
		{line: `opening = { Authorization = env("T") == "" ? "Bearer hunter22" : "Bearer ${env("T")}" }`, want: "Authorization is a secret, and"},
		{line: `opening = { Authorization = "Bearer hunter22${var.suffix}" }`, want: "Authorization is a secret, and"},
		{line: `opening = { Authorization = "Bearer hunter22-${env("T")}" }`, want: "Authorization is a secret, and"},
		{line: `opening = { Authorization = "Basic ${base64encode("${env("U")}:hunter22")}" }`, want: "Authorization is a secret, and"},
		{line: `opening = { Authorization = sensitive("hunter22${env("T")}") }`, want: "Authorization is a secret, and"},
		{line: `opening = { X-Pin-Secret = 12345678 }`, want: "X-Pin-Secret is a secret, which"},
		{line: `opening = { X-Url = "postgres://probe:hunter22@${var.suffix}/shop" }`, want: "X-Url has a URL with a password, which"},
		{line: `opening = { X-Url = "postgres://${var.suffix}:hunter22@db" }`, want: "X-Url has a URL with a password, which"},
		{line: `opening = { X-Url = "postgres://probe:hunter22${var.suffix}@db" }`, want: "X-Url has a URL with a password, and"},
		{line: `opening = { X-Url = "postgres://probe:${env("T", "hunter22")}@db" }`, want: "X-Url has a URL with a password, and"},
		{line: `opening = { X-Url = format("postgres://probe:hunter22@%s", var.suffix) }`, want: "X-Url has a URL with a password, which"},
		{line: `opening = { X-Url = format("postgres://%s:%s@db", env("U"), "hunter22") }`, want: "X-Url has a URL with a password, which"},
		{line: `opening = { X-Url = format("postgres://%s:%[3]s@%s", env("U"), "db", env("T", "hunter22")) }`, want: "X-Url has a URL with a password, and"},
		{line: `opening = { X-Url = format("postgres://%s:%s@db", [env("U"), "hunter22"]...) }`, want: "X-Url has a URL with a password, which"},
		{line: `opening = { X-Url = replace("https://probe:PASSWORD@h/", "PASSWORD", "hunter22") }`, want: "X-Url has a URL with a password, which"},
		{line: `opening = { X-Url = replace("https://probe:hunter22@HOST/", "HOST", env("T")) }`, want: "X-Url has a URL with a password, which"},
		{line: `opening = { X-Url = trimspace(file("url")) }`, want: "X-Url has a URL with a password, which"},
		{line: `opening = { X-Url = templatefile("url-of", { host = "db" }) }`, want: "X-Url has a URL with a password, which"},
		{line: `opening = { X-Url = templatefile("url-of", { host = env("T") }) }`, want: "X-Url has a URL with a password, which"},
		{line: `opening = { X-Url = templatefile("url-of", { host = var.suffix }) }`, want: "X-Url has a URL with a password, which"},
		{line: `opening = { X-Url = join("", ["postgres://probe:", "hunter22", "@db"]) }`, want: "X-Url has a URL with a password, which"},
		{line: `headers = { X-Url = trimspace(file("url")) }`, want: "X-Url is a secret, which"},
		{more: `locals { urls = split("\n", file("url")) }`, want: "urls has a URL with a password, which"},
		{more: `locals { password = coalesce(env("T"), "hunter22") }`, want: "password is a secret, and"},
		{more: `locals { password = lookup({ a = "hunter22" }, env("T"), "") }`, want: "password is a secret, and"},
		{more: "locals {\n  x = 1\n  env = { PGPASSWORD = \"hunter22${local.x}\" }\n}", want: "PGPASSWORD is a secret, and"},
		{line: `headers = { X-Scope-OrgID = "shop", Authorization = "Bearer hunter22" }`, want: "Authorization is a secret, which"},
		{line: `headers = { X-Api-Key = env("T", "hunter22") }`, want: "X-Api-Key is a secret, and"},
		{line: `headers = local.all`, more: `locals { all = { X-Team = "shop", X-Api-Key = "hunter22" } }`, want: "headers is a secret, which"},
		{line: `headers = local.all[env("STAGE")]`, more: `locals { all = { a = { X-Api-Key = "hunter22" } } }`, want: "headers is a secret, and"},
		{line: `headers = merge(jsondecode(env("MORE")), { X-Api-Key = "hunter22" })`, want: "headers is a secret, and"},
		{line: `headers = { X-Url = local.url }`, more: `locals { url = "https://a:hunter22@b/" }`, want: "url has a URL with a password, which"},
		{line: `headers = { X-Team = sensitive("hunter22") }`, want: "X-Team is a secret, which"},

		{line: `headers = { X-Scope-OrgID = "shop", Content-Type = ["text/plain"] }`},
		{line: `headers = merge(local.all, { Authorization = "Bearer ${env("T")}" })`, more: `locals { all = { X-Team = "shop" } }`},
		{line: `headers = merge(jsondecode(env("MORE")), { X-Team = "shop" })`},
		{line: `headers = local.all[env("STAGE")]`, more: `locals { all = { a = { X-Team = "shop", X-Api-Key = env("T") } } }`},
		{line: `opening = { Authorization = "Bearer ${env("T")}", Cookie = "session=${env("T")}; lang=en" }`},
		{line: `opening = { Authorization = "Basic ${base64encode("monitoring:${env("T")}")}" }`},
		{line: `opening = { Authorization = "PVEAPIToken=root@pam!monitoring=${env("T")}" }`},
		{line: `opening = { Authorization = "GenieKey ${var.suffix}" }`},
		{line: `opening = { Authorization = local.per_host[env("STAGE")] }`, more: `locals { per_host = { a = "consent=yes" } }`},
		{line: `opening = { X-Token-Age = 100 }`},
		{line: `opening = { X-Url = "postgres://probe:${env("T")}@db.internal/shop_production" }`},
		{line: `opening = { X-Url = format("postgres://%s:%s@db/shop", env("U"), env("T")) }`},
		{line: `opening = { X-Url = format("postgres://%s:%s@db/shop", env("U", "monitoring"), env("T")) }`},
		{line: `opening = { X-Url = format("postgres://%[2]s:%[1]s@db/%%", env("T"), "monitoring") }`},
		{line: `opening = { X-Url = formatlist("https://probe:%s@%s/", env("T"), ["one", "two"])[0] }`},
		{line: `opening = { X-Url = replace("https://probe:PASSWORD@h/", "PASSWORD", env("T")) }`},
		{line: `opening = { X-Url = "postgres://probe:${env("T")}@${env("HOST", "localhost")}/shop" }`},
		{line: `opening = { X-Url = "https://${env("HOST", "localhost")}:8443/a@b" }`},
		{line: `opening = { X-Url = trimspace(file("/etc/url")) }`},
		{line: `opening = { X-Url = templatefile("url-by", { password = env("T") }) }`},
		{line: `opening = { X-Url = join("", ["postgres://probe:", env("T"), "@db"]) }`},
		{more: `locals { db_credentials = "postgres://probe:${env("T")}@db.internal/shop_production" }`},
		{more: `locals { token_file = "/etc/${env("HOST", "a")}/token" }`},
		{more: "locals {\n  host = \"a\"\n  password = file(\"/etc/${local.host}/password-of-host\")\n}"},
	} {
		name, expression, _ := strings.Cut(c.line, " = ")
		if c.line == "" {
			name, expression = "greeting", `env("T")`
		}
		o := withChoice()
		read := o.ReadFile
		o.ReadFile = func(path string, most int64) ([]byte, error) {
			switch {
			case strings.HasSuffix(path, "/password-of-host"):
				return []byte("of this machine"), nil
			case strings.HasSuffix(path, "/url"):
				return []byte("https://probe:hunter22@h/\n"), nil
			case strings.HasSuffix(path, "/url-of"):
				return []byte("https://probe:hunter22@${host}/"), nil
			case strings.HasSuffix(path, "/url-by"):
				return []byte("https://probe:${password}@h/"), nil
			}
			return read(path, most)
		}
		env := o.Env
		o.Env = func(name string) (string, bool) {
			if name == "STAGE" {
				return "a", true
			}
			return env(name)
		}
		_, got := pushTexts(o, "", name, expression, "variable \"suffix\" {\n  default = \"x\"\n}\n"+c.more, false)
		isReported := strings.Contains(got, inFiles)
		if c.want == "" && strings.Contains(got, "error:") || c.want != "" && (!isReported || !strings.Contains(got, c.want)) || strings.Contains(got, "hunter22") {
			t.Errorf("%s %s: got\n%s\nwant %q", c.line, c.more, got, c.want)
		}
	}
}

func TestReportsOfAlternativesSayWhereTheTextIs(t *testing.T) {
	_, got := pushTexts(withChoice(), "", "greeting", "local.all", "locals {\n  all = env(\"T\", \"hunter22\")\n}\n", false)
	for _, part := range []string{"fleet:/web.hcl:6:18", "fleet:/more.hcl:2:18", "leave it out", `env("…") without a default`} {
		if !strings.Contains(got, part) {
			t.Errorf("without %q:\n%s", part, got)
		}
	}
	if strings.Contains(got, "hunter22") {
		t.Errorf("it shows the text:\n%s", got)
	}
}

// HCL counts the places in a JSON string without its backslashes.
func TestReportsOfAlternativesInJSONShowNoText(t *testing.T) {
	for _, text := range []string{`"${env(\"T\", \"hunter22\")}"`, `"\u0024{ \"\" == \"\" ? env(\"T\", \"hunter22\") : \"\"}"`} {
		o := withShout(withChoice())
		o.IsPushed = func(name string) bool { return strings.HasPrefix(name, "fleet:/") }
		web := "target \"web\" {\n  address = \"10.0.0.4\"\n  probe \"readiness\" {\n    shout { greeting = local.all }\n  }\n}\n"
		_, diags := Parse([]Source{
			{"config.hcl", []byte(ownFile)}, {"fleet:/locals.hcl.json", []byte("{\"locals\": {\n  \"all\": " + text + "\n}}")}, {"fleet:/web.hcl", []byte(web)},
		}, o)
		var got strings.Builder
		if err := diags.WriteText(&got, false); err != nil || strings.Contains(got.String(), "22") || !strings.Contains(got.String(), "fleet:/locals.hcl.json:2:10: it can become this text") {
			t.Errorf("%s: %v\n%s", text, err, got.String())
		}
	}
}

// expressions makes expressions at random. Each text in them is unique, and begins with lit.
type expressions struct {
	*rand.Rand
	texts  int
	locals []string
}

func (g *expressions) text() string {
	g.texts++
	return fmt.Sprintf("%q", fmt.Sprintf("lit%d", g.texts))
}

func (g *expressions) env() string { return fmt.Sprintf("env(%q)", string(rune('A'+g.IntN(4)))) }

// next returns an expression of a string.
func (g *expressions) next(depth int) string {
	some := func() string { return g.next(depth - 1) }
	if depth == 0 {
		if g.IntN(3) == 0 {
			return g.text()
		}
		return g.env()
	}
	maps := func() string { return fmt.Sprintf("{ a = %s, b = %s }", some(), some()) }
	switch g.IntN(26) {
	case 0:
		return fmt.Sprintf("env(\"A\", %s)", some())
	case 1:
		return fmt.Sprintf("(%s == \"a\" ? %s : %s)", g.env(), some(), some())
	case 2:
		return fmt.Sprintf("try(%s, %s)", some(), some())
	case 3:
		return fmt.Sprintf("coalesce(%s, %s)", some(), some())
	case 4:
		return fmt.Sprintf("%s[%s]", maps(), g.env())
	case 5:
		return maps() + `["a"]`
	case 6:
		return maps() + ".b"
	case 7:
		return fmt.Sprintf("[%s, %s][strlen(%s)]", some(), some(), g.env())
	case 8:
		return fmt.Sprintf("[for k, v in %s : v if k == %s][0]", maps(), g.env())
	case 9:
		return fmt.Sprintf("one([for k, v in %s : v if k == %s])", maps(), g.env())
	case 10:
		return fmt.Sprintf("lookup(%s, %s, %s)", maps(), g.env(), some())
	case 11:
		return fmt.Sprintf("trimspace(%s)", some())
	case 12:
		return fmt.Sprintf("\"${%s}\"", some())
	case 13:
		return fmt.Sprintf("\"x${%s}\"", some())
	case 14:
		return fmt.Sprintf("merge(%s, { b = %s }).b", maps(), some())
	case 15:
		return fmt.Sprintf("merge(%s, jsondecode(env(\"J\"))).a", maps())
	case 16:
		return fmt.Sprintf("values(%s)[strlen(%s)]", maps(), g.env())
	case 17:
		return fmt.Sprintf("element([%s, %s], strlen(%s))", some(), some(), g.env())
	case 18:
		return fmt.Sprintf("compact(concat([%s], [%s, %s]))[0]", some(), some(), some())
	case 19:
		return fmt.Sprintf("{ a = { w = %s }, b = { w = %s } }[%s].w", some(), some(), g.env())
	case 20:
		return fmt.Sprintf("([{ w = %s }, { w = %s }][*].w)[strlen(%s)]", some(), some(), g.env())
	case 21:
		return fmt.Sprintf("{ for k, v in %s : \"${k}${%s}\" => v }[\"a\"]", maps(), g.env())
	case 22:
		return fmt.Sprintf("(length([for k, v in %s : k if k == %s]) == 1 ? %s : %s)", maps(), g.env(), some(), some())
	case 23:
		return fmt.Sprintf("{ for x in split(\",\", %s) : x => (x == \"a\" ? %s : %s) }[%s]", g.env(), some(), some(), g.env())
	case 24:
		return fmt.Sprintf("([for x in split(\",\", %s) : { w = (x == %s ? %s : %s) }][*].w)[0]", g.env(), g.env(), some(), some())
	}
	if len(g.locals) == 0 {
		return some()
	}
	return "local." + g.locals[g.IntN(len(g.locals))]
}

// secrets are expressions of sensitive fields, and what they refer to. None has an error.
type secrets struct {
	expressions []string
	locals      string
}

func (g *expressions) secrets() (s secrets) {
	var locals strings.Builder
	locals.WriteString("locals {\n")
	for i := range 4 {
		fmt.Fprintf(&locals, "  l%d = try(%s, \"\")\n", i, g.next(2))
		g.locals = append(g.locals, fmt.Sprintf("l%d", i))
	}
	s.locals = locals.String() + "}\n"
	for range (shout{}).fields() {
		s.expressions = append(s.expressions, fmt.Sprintf("try(%s, \"\")", g.next(3)))
	}
	return s
}

// withoutTexts returns the same without texts.
func (s secrets) withoutTexts() secrets {
	text := regexp.MustCompile(`"lit[0-9]+"|\bx\$`)
	empty := func(in string) string {
		return text.ReplaceAllStringFunc(in, func(found string) string {
			if found == "x$" {
				return "$"
			}
			return `""`
		})
	}
	out := secrets{locals: empty(s.locals)}
	for _, e := range s.expressions {
		out.expressions = append(out.expressions, empty(e))
	}
	return out
}

func (s secrets) parse(o Options, inJSON bool) (*Config, Diagnostics) {
	o = withShout(o)
	o.IsPushed = func(name string) bool { return strings.HasPrefix(name, "fleet:/") }
	native := "target \"web\" {\n  address = \"10.0.0.4\"\n  probe \"readiness\" {\n    shout {\n"
	inside := map[string]any{}
	for i, e := range s.expressions {
		native += fmt.Sprintf("      %c = %s\n", 'a'+i, e)
		inside[string(rune('a'+i))] = "${" + e + "}"
	}
	web := Source{"fleet:/web.hcl", []byte(native + "    }\n  }\n}\n")}
	if inJSON {
		text, err := json.Marshal(map[string]any{"target": map[string]any{"web": map[string]any{
			"address": "10.0.0.4", "probe": map[string]any{"readiness": map[string]any{"shout": inside}},
		}}})
		if err != nil {
			panic(err)
		}
		web = Source{"fleet:/web.hcl.json", text}
	}
	return Parse([]Source{{"config.hcl", []byte(ownFile)}, web, {"fleet:/more.hcl", []byte(s.locals)}}, o)
}

// refused returns the expressions that cannot be pushed.
func (s secrets) refused(t *testing.T, inJSON bool) map[int]bool {
	o := toPush()
	o.Env = environment("a", "b", "a", "")
	_, diags := s.parse(o, inJSON)
	refused := map[int]bool{}
	for _, d := range diags {
		refused[int(d.Summary[0]-'a')] = true
		if !strings.HasPrefix(d.Summary[1:], " is a secret, ") {
			t.Error(d)
		}
	}
	return refused
}

// onEngines returns the texts of the files that secrets have on engines with some environments, by the expressions.
func (s secrets) onEngines(t *testing.T, g *expressions) map[int]string {
	words := []string{"a", "b", "", "-", "other"}
	found := map[int]string{}
	for range 25 {
		var values []string
		for range 4 {
			values = append(values, words[g.IntN(len(words))])
		}
		o := testOptions()
		o.Env = environment(values...)
		c, diags := s.parse(o, false)
		if diags.HasErrors() {
			t.Fatal(diags)
		}
		handler := c.Set[probe.ID{Target: "web", Kind: probe.Readiness}].Handler.(*fake)
		for i, text := range handler.config.(shout).fields() {
			if strings.HasPrefix(text, "lit") {
				found[i] = text
			}
		}
	}
	return found
}

// environment returns an environment with the variables A to D, "-" for none, and an object in J.
func environment(values ...string) func(string) (string, bool) {
	return func(name string) (string, bool) {
		if name == "J" {
			return `{"c": "d"}`, true
		}
		if i := int(name[0] - 'A'); len(name) == 1 && i < len(values) && values[i] != "-" {
			return values[i], true
		}
		return "", false
	}
}

// A text of the files that a secret has on an engine with some environment is reported before the push, and without
// texts nothing is.
func TestNoTextOfAPushedFileIsTheSecretOfAnEngine(t *testing.T) {
	tier.Slow(t)
	const files = 12
	all, texts := 0, 0
	for seed := range uint64(files) {
		g := &expressions{Rand: rand.New(rand.NewPCG(seed, 1))}
		s := g.secrets()
		found := s.onEngines(t, g)
		all, texts = all+len(s.expressions), texts+len(found)
		for _, inJSON := range []bool{false, true} {
			refused := s.refused(t, inJSON)
			for i, text := range found {
				if !refused[i] {
					t.Errorf("file %d, JSON %v: %s can be %s, and is pushed with\n%s", seed, inJSON, s.expressions[i], text, s.locals)
				}
			}
			empty := s.withoutTexts()
			for i := range empty.refused(t, inJSON) {
				t.Errorf("file %d, JSON %v: %s has no text, and is not pushed with\n%s", seed, inJSON, empty.expressions[i], empty.locals)
			}
		}
	}
	if texts < all/10 || texts > all*9/10 {
		t.Errorf("%d of %d expressions can be one of their texts", texts, all)
	}
}
