package process

import (
	"errors"
	"log/slog"
	"maps"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"syscall"
	"testing"

	"github.com/sonde-probe/sonde/restart"
)

func envFile(t *testing.T, text string) string {
	t.Helper()
	path := filepath.Join(t.TempDir(), "web.env")
	if err := os.WriteFile(path, []byte(text), 0o600); err != nil {
		t.Fatal(err)
	}
	return path
}

func TestEnvFilesAreRead(t *testing.T) {
	got, err := ReadEnvFile(envFile(t, "# a comment\n\nA=1\n  B = two words # not a comment \r\nC=\"quoted\"\nD='$HOME \"x\"'\nE=\n_f1=a=b\nG=\"\nA=2"))
	want := map[string]string{"A": "2", "B": "two words # not a comment", "C": "quoted", "D": `$HOME "x"`, "E": "", "_f1": "a=b", "G": `"`}
	if err != nil || !maps.Equal(got, want) {
		t.Errorf("got %q, %v", got, err)
	}
}

func TestWrongEnvFilesAreNamedWithoutTheirValues(t *testing.T) {
	for text, want := range map[string]string{
		"A=1\nhunter2":                    "line 2: want NAME=value",
		"export TOKEN=hunter2":            "line 1: want NAME=value",
		"1A=hunter2":                      "line 1: want NAME=value",
		"=hunter2":                        "line 1: want NAME=value",
		"A=hunter2\x00":                   "has a NUL byte in line 1",
		strings.Repeat("#", maxEnvFile+1): "file is too large; the limit is 65536 bytes",
	} {
		path := envFile(t, text)
		_, err := ReadEnvFile(path)
		if err == nil || !strings.Contains(err.Error(), want) || !strings.Contains(err.Error(), path) || strings.Contains(err.Error(), "hunter2") {
			t.Errorf("got %v, want %s", err, want)
		}
	}
	fifo := filepath.Join(t.TempDir(), "fifo")
	if err := syscall.Mkfifo(fifo, 0o600); err != nil {
		t.Fatal(err)
	}
	for _, path := range []string{t.TempDir(), fifo, "/dev/zero"} {
		if _, err := ReadEnvFile(path); err == nil || !strings.Contains(err.Error(), path+" is not a regular file") {
			t.Errorf("got %v", err)
		}
	}
}

func TestAProcessHasTheVariablesOfItsEnvFile(t *testing.T) {
	path := envFile(t, "SECRET=correct-horse\nBOTH=file\n")
	c := sh(`echo "$SECRET $BOTH $(ARGUMENT)"`)
	c.Command[2] = strings.ReplaceAll(c.Command[2], "ARGUMENT", "SECRET")
	c.Env, c.EnvFile = map[string]string{"BOTH": "env"}, path
	var sensitive []string
	c.Sensitive = func(values []string) { sensitive = append(sensitive, values...) }
	if exit := begin(t, c).exit(t); exit.Output != "correct-horse env correct-horse" {
		t.Errorf("exit %+v", exit)
	}
	if slices.Sort(sensitive); !slices.Equal(sensitive, []string{"correct-horse", "file"}) {
		t.Errorf("sensitive values are %q", sensitive)
	}
	if err := os.WriteFile(path, []byte("SECRET=another\nBOTH=file\n"), 0o600); err != nil {
		t.Fatal(err)
	}
	if exit := begin(t, c).exit(t); exit.Output != "another env another" {
		t.Errorf("after a change: exit %+v", exit)
	}
}

func TestAProcessWithoutItsEnvFileIsNotStarted(t *testing.T) {
	c := sh("echo it runs")
	c.EnvFile, c.Logger = filepath.Join(t.TempDir(), "missing"), slog.New(slog.DiscardHandler)
	exit := driver(t, c).Run(t.Context(), func(restart.Begun) { t.Error("it has started") }, nil)
	if exit.Code != -1 || !errors.Is(exit.Err, os.ErrNotExist) || !strings.HasPrefix(exit.Err.Error(), "env_file: open ") {
		t.Errorf("exit %+v", exit)
	}
}
