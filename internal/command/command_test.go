package command

import (
	"errors"
	"io/fs"
	"os"
	"os/user"
	"path/filepath"
	"slices"
	"strconv"
	"strings"
	"syscall"
	"testing"

	"github.com/sonde-probe/sonde/probe"
)

func TestCheckNamesTheWrongField(t *testing.T) {
	for name, c := range map[string]struct {
		command Command
		field   string
	}{
		"no words":            {Command{}, "command"},
		"empty program":       {Command{Words: []string{"", "x"}}, "command"},
		"NUL in a word":       {Command{Words: []string{"a", "b\x00"}}, "command"},
		"empty variable name": {Command{Words: []string{"a"}, Env: map[string]string{"": "x"}}, "env"},
		"= in variable name":  {Command{Words: []string{"a"}, Env: map[string]string{"A=B": "x"}}, "env"},
		"NUL in a value":      {Command{Words: []string{"a"}, Env: map[string]string{"A": "\x00"}}, "env"},
		"NUL in dir":          {Command{Words: []string{"a"}, Dir: "\x00"}, "dir"},
		"NUL in user":         {Command{Words: []string{"a"}, User: "\x00"}, "user"},
	} {
		t.Run(name, func(t *testing.T) {
			var field *probe.FieldError
			if err := c.command.Check(); !errors.As(err, &field) || field.Field != c.field {
				t.Errorf("Check() = %v, want an error about %s", err, c.field)
			}
			if _, err := c.command.Plan(); !errors.As(err, &field) || field.Field != c.field {
				t.Errorf("Plan() = %v, want an error about %s", err, c.field)
			}
		})
	}
}

func TestEnvironmentHidesTheEnginesVariables(t *testing.T) {
	t.Setenv("SECRET_TOKEN", "s3cret")
	t.Setenv("LANG", "C.UTF-8")
	t.Setenv("TZ", "")
	plan := planOf(t, Command{Words: []string{"sh"}, Env: map[string]string{"A": "1", "PATH": "/bin:/usr/bin"}})
	for _, want := range []string{"A=1", "PATH=/bin:/usr/bin", "LANG=C.UTF-8"} {
		if !slices.Contains(plan.Env, want) {
			t.Errorf("the environment lacks %s: %q", want, plan.Env)
		}
	}
	for _, variable := range plan.Env {
		if strings.HasPrefix(variable, "SECRET_TOKEN") || strings.HasPrefix(variable, "TZ=") {
			t.Errorf("the environment has %s", variable)
		}
	}
}

func TestEnvironmentHasADefaultPath(t *testing.T) {
	t.Setenv("PATH", "")
	plan := planOf(t, Command{Words: []string{"sh"}})
	if !slices.Contains(plan.Env, "PATH="+defaultPath) {
		t.Errorf("environment %q", plan.Env)
	}
}

func TestProgramIsSearchedInTheCommandsPath(t *testing.T) {
	dir := t.TempDir()
	file := filepath.Join(dir, "only-here")
	if err := os.WriteFile(file, []byte("#!/bin/sh\n"), 0o755); err != nil {
		t.Fatal(err)
	}
	if err := os.WriteFile(filepath.Join(dir, "not-executable"), nil, 0o644); err != nil {
		t.Fatal(err)
	}
	t.Chdir(dir)
	inPath := map[string]string{"PATH": dir}
	if got := planOf(t, Command{Words: []string{"only-here"}, Env: inPath}).Path; got != file {
		t.Errorf("path %q, want %q", got, file)
	}
	for name, c := range map[string]Command{
		"not in PATH":       {Words: []string{"only-here"}, Env: map[string]string{"PATH": "/nowhere"}},
		"engine's own dir":  {Words: []string{"only-here"}, Env: map[string]string{"PATH": ".::"}},
		"not an executable": {Words: []string{"not-executable"}, Env: inPath},
	} {
		t.Run(name, func(t *testing.T) {
			if plan, err := c.Plan(); err == nil {
				t.Errorf("found %s", plan.Path)
			}
		})
	}
}

func TestAProgramThatCannotBeLookedUpIsNotMissing(t *testing.T) {
	for number, unread := range map[syscall.Errno]bool{
		syscall.EIO: true, syscall.ESTALE: true, syscall.ENOMEM: true, syscall.ENOTCONN: true,
		syscall.ENOENT: false, syscall.ENOTDIR: false, syscall.EACCES: false, syscall.ELOOP: false, syscall.ENAMETOOLONG: false,
	} {
		stat := func(path string) (fs.FileInfo, error) {
			if strings.HasPrefix(path, "/broken/") {
				return nil, &fs.PathError{Op: "stat", Path: path, Err: number}
			}
			return os.Stat(path)
		}
		if _, err := lookupProgram("sonde-none", "/broken:/nowhere", stat); err == nil || errors.Is(err, ErrLookup) != unread {
			t.Errorf("%v: got %v", number, err)
		}
		if _, err := lookupProgram("sh", "/broken:/bin", stat); err != nil {
			t.Errorf("%v: a program in another directory is not found: %v", number, err)
		}
		c := Command{Words: []string{"sonde-none"}, Env: map[string]string{"PATH": "/broken"}}
		if err := c.missing(account{}, nil, stat); (err == nil) != unread {
			t.Errorf("%v: missing is %v", number, err)
		}
	}
}

func TestUserIsLookedUp(t *testing.T) {
	if os.Geteuid() != 0 {
		t.Skip("only root can look up other users' credentials")
	}
	nobody, err := user.Lookup("nobody")
	if err != nil {
		t.Skip("this system has no user nobody")
	}
	for text, want := range map[string]string{
		"nobody":                           nobody.Uid + ":" + nobody.Gid,
		nobody.Uid:                         nobody.Uid + ":" + nobody.Gid,
		"nobody:root":                      nobody.Uid + ":0",
		"nobody:4242":                      nobody.Uid + ":4242",
		"424242:4242":                      "424242:4242",
		"root":                             "0:0",
		nobody.Uid + ":" + nobody.Gid + "": nobody.Uid + ":" + nobody.Gid,
	} {
		c := planOf(t, Command{Words: []string{"sh"}, User: text}).Credential
		got := strconv.Itoa(int(c.Uid)) + ":" + strconv.Itoa(int(c.Gid))
		if got != want {
			t.Errorf("user %q is %s, want %s", text, got, want)
		}
	}
}

func TestUnknownUserIsAnError(t *testing.T) {
	for _, text := range []string{"no-such-user", "no-such-user:0", "424242", "0:no-such-group", ":", "-1", "4294967296:0", "0:"} {
		if plan, err := (Command{Words: []string{"sh"}, User: text}).Plan(); err == nil {
			t.Errorf("user %q is %+v", text, plan.Credential)
		}
	}
}

func planOf(t *testing.T, c Command) Plan {
	t.Helper()
	plan, err := c.Plan()
	if err != nil {
		t.Fatal(err)
	}
	return plan
}
