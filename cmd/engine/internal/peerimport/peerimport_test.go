package peerimport_test

import (
	"flag"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"github.com/sonde-probe/sonde/cmd/engine/internal/peerimport"
	"github.com/sonde-probe/sonde/config"
	"github.com/sonde-probe/sonde/tests/golden"
)

var rewrite = flag.Bool("rewrite", false, "write the golden files anew")

func TestConfigurationsOfOtherToolsBecomeTargets(t *testing.T) {
	for _, name := range []string{"supervisord.conf", "monitrc", "gatus.yaml"} {
		t.Run(name, func(t *testing.T) {
			text, err := os.ReadFile(filepath.Join("testdata", name))
			if err != nil {
				t.Fatal(err)
			}
			if !peerimport.Recognizes(text) {
				t.Fatal("it is not recognized")
			}
			doc, warnings, err := peerimport.Write(name, text, peerimport.Options{})
			if err != nil {
				t.Fatal(err)
			}
			got := string(doc.Bytes()) + "\n" + strings.Join(warnings, "\n") + "\n"
			golden.Check(t, filepath.Join("testdata", name+".golden"), got, *rewrite)
		})
	}
}

// convert returns the converted text and the warnings.
func convert(t *testing.T, text string, o peerimport.Options) (string, []string) {
	t.Helper()
	doc, warnings, err := peerimport.Write("file", []byte(text), o)
	if err != nil {
		t.Fatal(err)
	}
	return string(doc.Bytes()), warnings
}

// isWritten reports whether a document contains a line with this start that is not a comment.
func isWritten(doc, start string) bool {
	for line := range strings.Lines(doc) {
		if strings.HasPrefix(strings.TrimSpace(line), start) {
			return true
		}
	}
	return false
}

func TestACheckThatWouldBeLaxerIsAComment(t *testing.T) {
	for name, text := range map[string]string{
		"a function of gatus":       "endpoints: [{name: a, url: 'http://a.example', conditions: ['len([BODY].x) > 0']}]",
		"a condition without sense": "endpoints: [{name: a, url: 'http://a.example', conditions: ['up']}]",
		"two conditions of status":  "endpoints: [{name: a, url: 'http://a.example', conditions: ['[STATUS] > 199', '[STATUS] < 300']}]",
		"a body of tcp":             "endpoints: [{name: a, url: 'tcp://a.example:1', conditions: ['[BODY] == x']}]",
		"a certificate without TLS": "endpoints: [{name: a, url: 'http://a.example', conditions: ['[CERTIFICATE_EXPIRATION] > 48h']}]",
		"a protocol of monit":       "check host a with address a.example\n if failed port 5432 protocol pgsql then alert\n",
		"UDP":                       "check host a with address a.example\n if failed port 53 type udp then alert\n",
		"a checksum":                "check host a with address a.example\n if failed port 80 protocol http request / checksum 8f7f419955cefa0b33a2ba316cba3659 then alert\n",
	} {
		doc, warnings := convert(t, text, peerimport.Options{})
		if isWritten(doc, "probe") || len(warnings) == 0 {
			t.Errorf("%s: %q became\n%s", name, text, doc)
		}
		if doc, warnings := convert(t, text, peerimport.Options{Lax: true}); !isWritten(doc, "probe") || !strings.Contains(strings.Join(warnings, "\n"), "laxer") {
			t.Errorf("%s, with --lax: %q became\n%s", name, text, doc)
		}
	}
}

func TestErrorsOfOtherToolsAreErrors(t *testing.T) {
	for text, want := range map[string]string{
		"[program:a]\nautostart=true\n":               "[program:a]: it has no command",
		"[program:a]\ncommand=a\nnumprocs=2\n":        "process_name lacks %(process_num)d",
		"[program:a]\ncommand=a\nnumprocs=101\n":      "for_each",
		"[program:a]\ncommand=a\nnumprocs=x\n":        `numprocs is "x"`,
		"command=a\n[program:a]\n":                    "line 1 is in no section",
		"[program:a]\nword\n":                         "line 2 has no key",
		"set daemon x\ncheck host a with address b\n": "line 1: set daemon x",
		"check host a with address \"b\n":             "line 1: a quote has no end",
		"endpoints: [{url: 'http://a.example'}]":      "endpoints[0] has no name",
	} {
		if _, _, err := peerimport.Write("file", []byte(text), peerimport.Options{}); err == nil || !strings.Contains(err.Error(), want) {
			t.Errorf("%q gives %v, want %q", text, err, want)
		}
	}
}

func TestOtherFilesAreNotRecognized(t *testing.T) {
	for _, text := range []string{
		"", "apiVersion: v1\nkind: Pod\n", "modules: {http_2xx: {prober: http}}", "target \"check\" { }", "# check the program\n", "endpoints: []",
		"[Unit]\nDescription=program\n",
	} {
		if peerimport.Recognizes([]byte(text)) {
			t.Errorf("%q is taken for a configuration of another tool", text)
		}
	}
}

func FuzzWhatIsWrittenCanBeRead(f *testing.F) {
	for _, name := range []string{"supervisord.conf", "monitrc", "gatus.yaml"} {
		text, err := os.ReadFile(filepath.Join("testdata", name))
		if err != nil {
			f.Fatal(err)
		}
		f.Add(text)
	}
	f.Add([]byte("[program:${a}]\ncommand=$(x) '%%{if}' \"\\\"\nenvironment=A=%(process_num)99d\n"))
	f.Add([]byte("check process \"${a}\" matching '$(x)'\nif failed port 1 send \"%{\" then restart"))
	f.Fuzz(func(t *testing.T, text []byte) {
		if !peerimport.Recognizes(text) {
			return
		}
		doc, _, err := peerimport.Write("file", text, peerimport.Options{Lax: true})
		if err != nil {
			return
		}
		if diags := config.Syntax(config.Source{Name: "import.hcl", Bytes: doc.Bytes()}); diags.HasErrors() {
			t.Errorf("%q became\n%s\n%v", text, doc.Bytes(), diags)
		}
	})
}
