package command

import (
	"cmp"
	"errors"
	"fmt"
	"io/fs"
	"maps"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"syscall"
)

// defaultPath is the PATH of commands if the engine has none: that of services on Linux distributions.
const defaultPath = "/usr/local/sbin:/usr/local/bin:/usr/sbin:/usr/bin:/sbin:/bin"

// inherited are the variables that commands inherit from the engine. Others may be secrets of the engine.
var inherited = [...]string{"LANG", "LC_ALL", "TZ"}

// environment returns the base environment, overridden by env. The base has PATH, LANG, LC_ALL and TZ of the engine, and HOME, USER
// and LOGNAME of the user that the command runs as.
func environment(acct account, env map[string]string) map[string]string {
	all := map[string]string{
		"PATH":    cmp.Or(os.Getenv("PATH"), defaultPath),
		"HOME":    acct.home,
		"USER":    acct.name,
		"LOGNAME": acct.name,
	}
	for _, name := range inherited {
		all[name] = os.Getenv(name)
	}
	maps.DeleteFunc(all, func(_, value string) bool { return value == "" })
	maps.Copy(all, env)
	return all
}

// assignments returns env as NAME=value, sorted by name.
func assignments(env map[string]string) []string {
	out := make([]string, 0, len(env))
	for _, name := range slices.Sorted(maps.Keys(env)) {
		out = append(out, name+"="+env[name])
	}
	return out
}

// lookupProgram returns the file of a program. A name with a slash is the file itself. Other names are searched for in path, the
// PATH of the command. Relative entries of path are skipped: they would be relative to the engine's directory. If a directory could
// not be searched, the program may still exist: the error then wraps ErrLookup.
func lookupProgram(name, path string, stat func(string) (fs.FileInfo, error)) (string, error) {
	if strings.Contains(name, "/") {
		return name, nil
	}
	var unread error
	for _, dir := range filepath.SplitList(path) {
		if !filepath.IsAbs(dir) {
			continue
		}
		file := filepath.Join(dir, name)
		info, err := stat(file)
		switch {
		case err == nil && info.Mode().IsRegular() && info.Mode()&0o111 != 0:
			return file, nil
		case err != nil && !isAbsent(err):
			unread = errors.Join(unread, err)
		}
	}
	if unread != nil {
		return "", fmt.Errorf("program %q %w: %w", name, ErrLookup, unread)
	}
	return "", fmt.Errorf("program %q is not in PATH (%s)", name, path)
}

// isAbsent reports whether an error of os.Stat persists until someone changes the file's path, so that the file does not exist for
// this user.
func isAbsent(err error) bool {
	return slices.ContainsFunc([]error{fs.ErrNotExist, fs.ErrPermission, syscall.ENOTDIR, syscall.ELOOP, syscall.ENAMETOOLONG},
		func(lasting error) bool { return errors.Is(err, lasting) })
}
