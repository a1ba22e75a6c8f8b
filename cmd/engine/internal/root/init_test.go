package root

import (
	"bytes"
	"os"
	"path/filepath"
	"strings"
	"testing"
)

// initialize runs sonde init, and returns its standard output and its questions.
func initialize(t *testing.T, answers string, args ...string) (out, questions string, err error) {
	t.Helper()
	var stdout, stderr bytes.Buffer
	c := initCommand()
	c.SilenceUsage, c.SilenceErrors = true, true
	c.SetIn(strings.NewReader(answers))
	c.SetOut(&stdout)
	c.SetErr(&stderr)
	c.SetArgs(args)
	err = c.Execute()
	return stdout.String(), stderr.String(), err
}

func TestAFirstConfigurationIsWritten(t *testing.T) {
	http := `target "web" {
  address = "127.0.0.1"
  ports   = { http = 8080 }

  # A target whose readiness probe fails gets no traffic.
  probe "readiness" {
    http {
      path = "/healthz?full=1"
      port = "http"
    }
  }
}
`
	run := `target "db" {
  address = "10.0.0.7"
  ports   = { tcp = 5432 }

  process { command = ["postgres", "-D", "/data"] }

  # A target whose readiness probe fails gets no traffic.
  probe "readiness" {
    tcp { port = "tcp" }
  }

  # A target whose liveness probe fails is restarted.
  probe "liveness" {
    tcp { port = "tcp" }
  }
}
`
	for name, c := range map[string]struct {
		answers string
		args    []string
		target  string
		want    string
	}{
		"a flag":    {"", []string{"--probe", "http://127.0.0.1:8080/healthz?full=1"}, "web", http},
		"questions": {"http://127.0.0.1:8080/healthz?full=1\n\n\n", nil, "web", http},
		"a command": {"tcp://10.0.0.7:5432\ndb\npostgres -D /data\n", nil, "db", run},
		"https":     {"", []string{"--probe", "https://shop.example.com"}, "shop", `scheme = "https"`},
		"a shell":   {"tcp://10.0.0.7:5432\n\nA=1 postgres; true", nil, "service", `["sh", "-c", "A=1 postgres; true"]`},
	} {
		t.Run(name, func(t *testing.T) {
			path := filepath.Join(t.TempDir(), "first.hcl")
			out, asked, err := initialize(t, c.answers, append(c.args, path)...)
			text, _ := os.ReadFile(path)
			if err != nil || !strings.Contains(string(text), c.want) || !strings.Contains(out, "sonde probe "+path+" "+c.target+"\n") {
				t.Errorf("%v; %s\nwrites\n%s\nwant\n%s", err, out, text, c.want)
			}
			if (strings.Count(asked, "?") == 0) != (c.answers == "") {
				t.Errorf("it asks %q", asked)
			}
		})
	}
}

func TestNoFirstConfigurationIsWrittenWithAMistake(t *testing.T) {
	for want, c := range map[string]struct {
		answers string
		args    []string
	}{
		"no URL to probe":         {"", nil},
		"is not a URL of http":    {"127.0.0.1\n", nil},
		"has no port":             {"", []string{"--probe", "tcp://db"}},
		"has no host":             {"", []string{"--probe", "http:///x"}},
		"does not belong":         {"", []string{"--probe", "http://me:secret@db/x"}},
		"exit code 1":             {"", []string{"--probe", "http://127.0.0.1/x", "--name", "a b\x00"}},
		"standard input cannot":   {"", []string{"--probe", "http://127.0.0.1/x", "-"}},
		"at most one CONFIG is a": {"", []string{"a", "b"}},
	} {
		t.Run(want, func(t *testing.T) {
			t.Chdir(t.TempDir())
			_, _, err := initialize(t, c.answers, c.args...)
			if err == nil || !strings.Contains(err.Error(), want) {
				t.Errorf("the error is %v, want %q", err, want)
			}
			if left, _ := os.ReadDir("."); len(left) > 0 {
				t.Errorf("%s is written", left[0].Name())
			}
		})
	}
}

func TestAnExistingConfigurationIsNotOverwritten(t *testing.T) {
	t.Chdir(t.TempDir())
	for _, create := range []func() error{
		func() error { return os.WriteFile("config.hcl", []byte("mine"), 0o644) },
		func() error { return os.Symlink("nowhere", "config.hcl") },
	} {
		if err := create(); err != nil {
			t.Fatal(err)
		}
		before, _ := os.ReadFile("config.hcl")
		_, _, err := initialize(t, "", "--probe", "http://127.0.0.1:8080")
		after, _ := os.ReadFile("config.hcl")
		if err == nil || !strings.Contains(err.Error(), "config.hcl exists") || !bytes.Equal(before, after) {
			t.Errorf("%v; the file has %q, then %q", err, before, after)
		}
		os.Remove("config.hcl")
	}
}
