package command

import (
	"cmp"
	"fmt"
	"maps"
	"os"
	"path/filepath"
	"slices"
	"strings"
)

// defaultPath is the PATH of commands when the engine has none: that of services on
// Linux distributions.
const defaultPath = "/usr/local/sbin:/usr/local/bin:/usr/sbin:/usr/bin:/sbin:/bin"

// inherited are the variables that commands inherit from the engine. Others can be
// secrets of the engine.
var inherited = [...]string{"LANG", "LC_ALL", "TZ"}

// environment returns the base environment with env on top. The base is PATH,
// LANG, LC_ALL and TZ of the engine, and HOME, USER and LOGNAME of the user
// the command runs as.
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

// lookupProgram finds the file of a program. A name with a slash is the file. Other
// names are searched in path, the PATH of the command. Relative entries of it are
// skipped: they would be relative to the engine's directory.
func lookupProgram(name, path string) (string, error) {
	if strings.Contains(name, "/") {
		return name, nil
	}
	for _, dir := range filepath.SplitList(path) {
		if file := filepath.Join(dir, name); filepath.IsAbs(dir) && executable(file) {
			return file, nil
		}
	}
	return "", fmt.Errorf("program %q is not in PATH (%s)", name, path)
}

func executable(file string) bool {
	info, err := os.Stat(file)
	return err == nil && info.Mode().IsRegular() && info.Mode()&0o111 != 0
}
