package process

import (
	"bytes"
	"errors"
	"testing"

	"github.com/sonde-probe/sonde/probe"
)

func TestAProcessHasItsUmask(t *testing.T) {
	for text, want := range map[string]string{"": "", "027": "0027", "0077": "0077", "000": "0000"} {
		c := sh("umask")
		if text != "" {
			if err := c.Umask.UnmarshalText([]byte(text)); err != nil {
				t.Fatal(err)
			}
		}
		if text == "" {
			want = begin(t, sh("umask")).exit(t).Output // that of this program
		}
		if exit := begin(t, c).exit(t); exit.Output != want {
			t.Errorf("umask %q: exit %+v, want %q", text, exit, want)
		}
		back, err := c.Umask.MarshalText()
		if err != nil || text != "" && !bytes.HasSuffix(back, []byte(text)) {
			t.Errorf("umask %q is written as %q: %v", text, back, err)
		}
	}
	for _, text := range []string{"", "27", "1000", "0o27", "888", "u=rwx", "-027"} {
		var u Umask
		var field *probe.FieldError
		if err := u.UnmarshalText([]byte(text)); !errors.As(err, &field) || field.Field != "umask" {
			t.Errorf("umask %q is %v: %v", text, u, err)
		}
	}
}

func TestOtherAttributesAreAnotherProcess(t *testing.T) {
	digests := map[string]bool{}
	plain := sh("true")
	for _, change := range []func(*Config){
		func(*Config) {}, func(c *Config) { c.EnvFile = "/etc/web.env" }, func(c *Config) { c.EnvFile = "/etc/other.env" },
		func(c *Config) { c.Umask = Umask{Set: true} }, func(c *Config) { c.Umask = Umask{Set: true, Bits: 0o27} },
		func(c *Config) { c.Nice = new(0) }, func(c *Config) { c.Nice = new(5) },
		func(c *Config) { c.Rlimits = map[string]string{"core": "0"} },
	} {
		c := plain
		change(&c)
		digests[c.digest()] = true
	}
	if len(digests) != 8 {
		t.Errorf("%d digests, want 8", len(digests))
	}
}
