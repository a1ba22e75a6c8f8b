package command

import (
	"errors"
	"io/fs"
	"os"
	"path/filepath"
	"strings"

	"github.com/sonde-probe/sonde/probe"
)

// Missing returns which of user, dir and command do not exist on this machine now, as probe.FieldErrors, or nil. Names whose lookup
// fails do not count as missing. The command must have passed Check.
func (c Command) Missing() error {
	acct, err := lookupUser(c.User)
	return c.missing(acct, err, os.Stat)
}

// missing is Missing, given the result of lookupUser and os.Stat.
func (c Command) missing(acct account, err error, stat func(string) (fs.FileInfo, error)) error {
	var missing probe.FieldErrors
	if err != nil && !errors.Is(err, ErrLookup) {
		missing.Add("user", "is %q: %v", c.User, err)
	}
	info, err := stat(c.Dir)
	switch {
	case c.Dir == "":
	case errors.Is(err, os.ErrNotExist):
		missing.Add("dir", "is %q, which does not exist", c.Dir)
		return missing // the program may be in it
	case err == nil && !info.IsDir():
		missing.Add("dir", "is %q, which is not a directory", c.Dir)
		return missing
	}
	c.missingProgram(environment(acct, c.Env)["PATH"], stat, &missing)
	return missing.Err()
}

func (c Command) missingProgram(path string, stat func(string) (fs.FileInfo, error), missing *probe.FieldErrors) {
	name := Expand(c.Words[0], c.Env)
	if _, err := lookupProgram(name, path, stat); err != nil {
		if !errors.Is(err, ErrLookup) {
			missing.Add("command", "needs the program %q, which is not in PATH", name)
		}
		return
	}
	file := name
	if !filepath.IsAbs(file) && c.Dir != "" {
		file = filepath.Join(c.Dir, file)
	}
	info, err := stat(file)
	switch {
	case !strings.Contains(name, "/"): // it was found in PATH
	case errors.Is(err, os.ErrNotExist):
		missing.Add("command", "needs the program %q, which does not exist", file)
	case err == nil && (!info.Mode().IsRegular() || info.Mode()&0o111 == 0):
		missing.Add("command", "needs the program %q, which is not executable", file)
	}
}
