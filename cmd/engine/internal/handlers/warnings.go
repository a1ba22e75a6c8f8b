package handlers

import (
	"cmp"
	"errors"
	"fmt"
	"maps"
	"net/netip"
	"net/url"
	"os"
	"path/filepath"
	"regexp"
	"regexp/syntax"
	"slices"
	"strconv"
	"strings"
	"time"

	icmpprobe "github.com/sonde-probe/sonde/builtin/icmp"
	"github.com/sonde-probe/sonde/config"
	"github.com/sonde-probe/sonde/config/suggest"
	"github.com/sonde-probe/sonde/internal/command"
	"github.com/sonde-probe/sonde/internal/dial"
	"github.com/sonde-probe/sonde/internal/logfile"
	"github.com/sonde-probe/sonde/internal/nonblock"
	"github.com/sonde-probe/sonde/internal/private"
	"github.com/sonde-probe/sonde/probe"
	"github.com/sonde-probe/sonde/restart"
	"github.com/sonde-probe/sonde/restart/process"
)

// lookUp makes the options warn of missing programs, directories, users, log files and permissions on this machine.
func lookUp(o *config.Options) {
	exec := o.Handlers["exec"]
	exec.Warn = warnOfExec
	o.Handlers["exec"] = exec
	icmp := o.Handlers["icmp"]
	icmp.Warn = warnOfICMP
	o.Handlers["icmp"] = icmp
	o.WarnOfNetwork = warnOfNetwork
	for name, driver := range o.Drivers {
		if name == "container" || name == "unit" { // their commands and files are elsewhere
			continue
		}
		driver.Warn = warnOfDriver
		o.Drivers[name] = driver
	}
	run, render := o.Notifiers["run"], o.Gateways["render"]
	run.Warn, render.Warn = warnOfNotifyRun, warnOfRender
	o.Notifiers["run"], o.Gateways["render"] = run, render
}

// warnOfNotifyRun warns if the program or the user of a notifier's command does not exist on this machine.
func warnOfNotifyRun(v config.Values) error {
	c := commandOf(v)
	c.Words = []string{command.Literal(c.Words[0])} // the command is not expanded
	return missing(c)
}

// warnOfRender warns if the path is a directory, or if the program of a gateway's command does not exist on this machine.
func warnOfRender(v config.Values) error {
	var err error
	if path, _ := v["path"].(string); isDir(path) {
		err = &probe.FieldError{Field: "path", Problem: fmt.Sprintf("is %q, a directory", path), Hint: "write the file in it that the template makes"}
	}
	c := commandOf(v)
	if len(c.Words) == 0 {
		return err
	}
	return errors.Join(err, missing(c))
}

// warnOfDriver warns if the program, the directory or the user of a process or restart block does not exist on this machine. It
// also warns of arguments without effect, and of unusable environment and log files.
func warnOfDriver(v config.Values) error {
	err := missing(commandOf(v))
	if v["log"] != nil && v["lines_per_second"] != nil {
		err = errors.Join(err, &probe.FieldError{Field: "lines_per_second", Problem: "has no effect, since log keeps the lines out of the engine's log", Hint: "remove it, or the log block"})
	}
	if v["ready_timeout"] != nil && v["notify"] != true {
		err = errors.Join(err, &probe.FieldError{Field: "ready_timeout", Problem: "has no effect, since nothing waits for READY=1", Hint: "add notify = true, or remove it"})
	}
	if path, _ := v["env_file"].(string); path != "" {
		if _, wrong := process.ReadEnvFile(path); wrong != nil {
			problem := strings.TrimPrefix(wrong.Error(), "env_file: ")
			err = errors.Join(err, &probe.FieldError{Field: "env_file", Problem: "cannot be used: " + problem, Hint: fmt.Sprintf("correct it, or ignore this if the engine runs elsewhere: it was read on %s", machine())})
		}
	}
	return errors.Join(err, warnOfLog(v))
}

// warnOfLog warns about a log file that cannot be written, or that another user may replace.
func warnOfLog(v config.Values) error {
	log, _ := v["log"].(config.Values)
	file, _ := log["file"].(string)
	if !filepath.IsAbs(file) { // reported as an error
		return nil
	}
	if wrong := logfile.Check(file); wrong != nil {
		return &probe.FieldError{Field: "log.file", Problem: "cannot be written, so that its lines would be dropped: " + wrong.Error(),
			Hint: fmt.Sprintf("correct it, or ignore this if the engine runs elsewhere, or as another user: it was looked up on %s", machine())}
	}
	if unsafe := private.CheckDirs(file); unsafe != nil {
		return &probe.FieldError{Field: "log.file", Problem: "may be replaced by another user, who decides then where the engine writes: " + unsafe.Error(),
			Hint: fmt.Sprintf("use a directory of root or of the engine's user, or ignore this if the engine runs elsewhere or as that user: it was looked up on %s", machine())}
	}
	return nil
}

// noEffect lists arguments of a target that have no effect with a restart block, with the reason and a remedy.
var noEffect = []struct{ field, why, remedy string }{
	{"stop_signal", stoppedByCommand, "remove it"},
	{"restart_exit_codes", "since the exit of what the restart block restarts is not known", "remove it"},
	{"termination_grace_period", stoppedByCommand, "remove it, and set timeout in the restart block"},
	{"pre_stop", stoppedByCommand, "remove it and write it into the command"},
}

const stoppedByCommand = "since the command of the restart block stops the target"

// warnOfNoRestart warns of a restart block whose command never runs because of restart_policy, since only probes run it. It
// also warns of arguments that apply only to a process of the engine.
func warnOfNoRestart(v config.Values) error {
	var warnings []error
	if v["restart_policy"] == restart.Never.String() {
		warnings = append(warnings, &probe.FieldError{Field: "restart_policy", Problem: "is never, so that no probe runs the command of the restart block",
			Hint: "leave restart_policy out, or the restart block if nothing is to be restarted"})
	}
	for _, of := range noEffect {
		if v[of.field] != nil {
			warnings = append(warnings, &probe.FieldError{Field: of.field, Problem: "has no effect, " + of.why,
				Hint: of.remedy + ", or let the engine start the target: process { … }"})
		}
	}
	return errors.Join(warnings...)
}

// warnOfProcessTarget warns of arguments that restart_policy makes ineffective, and of a pre_stop that the grace period cuts
// off.
func warnOfProcessTarget(v config.Values) error {
	var warnings []error
	if v["restart_policy"] == restart.Never.String() && v["back_off"] != nil {
		warnings = append(warnings, &probe.FieldError{Field: "back_off", Problem: "has no effect, since restart_policy is never", Hint: "remove one of the two"})
	}
	if policy := v["restart_policy"]; v["restart_exit_codes"] != nil && (policy == nil || policy == restart.Always.String()) {
		warnings = append(warnings, &probe.FieldError{Field: "restart_exit_codes", Problem: "has no effect, since restart_policy is always", Hint: `add restart_policy = "never" or "on_failure", or remove it`})
	}
	grace, isGiven := v["termination_grace_period"].(time.Duration)
	if !isGiven {
		grace = restart.DefaultTerminationGracePeriod
	}
	preStop, _ := v["pre_stop"].(config.Values)
	if sleep, _ := preStop["sleep"].(time.Duration); sleep > grace {
		warnings = append(warnings, &probe.FieldError{
			Field: "pre_stop.sleep", Problem: fmt.Sprintf("is %s and ends after %s, with termination_grace_period, of which it is part", probe.FormatDuration(sleep), probe.FormatDuration(grace)),
			Hint: "make termination_grace_period longer",
		})
	}
	return errors.Join(warnings...)
}

// warnOfUnitTarget is like warnOfProcessTarget, for a target that systemd stops.
func warnOfUnitTarget(v config.Values) error {
	warnings := []error{warnOfProcessTarget(v)}
	for field, setting := range map[string]string{"termination_grace_period": "TimeoutStopSec=", "stop_signal": "KillSignal=", "pre_stop": "ExecStop="} {
		if v[field] != nil {
			warnings = append(warnings, &probe.FieldError{Field: field, Problem: "has no effect, since systemd stops the unit", Hint: "write " + setting + " in the unit"})
		}
	}
	return errors.Join(warnings...)
}

// warnOfExec is like warnOfDriver, for an exec block. It does not warn about the directory and the user of the target, which
// belong to the process block and have their own warnings.
func warnOfExec(v config.Values, t probe.Target) error {
	if t.Runtime != "" && v["on_host"] != true { // the command runs inside a container
		return nil
	}
	c := commandOf(v)
	env := map[string]string{}
	maps.Copy(env, t.Env)
	maps.Copy(env, c.Env)
	c.Env, c.Dir, c.User = env, cmp.Or(c.Dir, t.Dir), cmp.Or(c.User, t.User)
	var own []error
	for _, one := range config.Separate(missing(c)) {
		var field *probe.FieldError
		if errors.As(one, &field) && v[field.Field] != nil {
			own = append(own, one)
		}
	}
	return errors.Join(own...)
}

func commandOf(v config.Values) command.Command {
	c := command.Command{}
	c.Words, _ = v["command"].([]string)
	c.Env, _ = v["env"].(map[string]string)
	c.Dir, _ = v["dir"].(string)
	c.User, _ = v["user"].(string)
	return c
}

// missing returns errors about programs, directories and users of a command that this machine lacks. They name this machine,
// since the configuration may be for another one.
func missing(c command.Command) error {
	errs := config.Separate(c.Missing())
	for _, one := range errs {
		var field *probe.FieldError
		if !errors.As(one, &field) {
			continue
		}
		switch field.Hint = fmt.Sprintf("correct it, or ignore this if the engine runs elsewhere: it was looked up on %s", machine()); {
		case field.Field == "dir" && strings.ContainsAny(c.Dir, "~$"):
			field.Hint = `no shell replaces ~ and variables: write "${env("HOME")}/…"`
		case field.Field == "command" && (c.Words[0] == "CMD" || c.Words[0] == "NONE"):
			field.Hint = fmt.Sprintf("leave %s out, which is Docker's: command = [\"program\", \"argument\"]", c.Words[0])
		case field.Field == "command" && c.Words[0] == "CMD-SHELL":
			field.Hint = `CMD-SHELL is Docker's: write command = ["/bin/sh", "-c", "…"]`
		}
	}
	return errors.Join(append(errs, shellWords(c.Words))...)
}

// forShell matches words of a command that only a shell interprets: operators and variables. It does not match words with
// spaces.
var forShell = regexp.MustCompile(`^(&&|\|\|?|>>|[12]?>>?/\S+|2>&1|\$[A-Za-z_]\w*(/\S*)?)$`)

// shellWords warns about words for a shell in a command that does not run a shell.
func shellWords(words []string) error {
	if flag := slices.IndexFunc(words, func(w string) bool { return strings.HasPrefix(w, "-") && strings.HasSuffix(w, "c") }); flag >= 0 {
		return unusedWords(words, flag) // the script of a shell: sh -c, bash -lc
	}
	i := slices.IndexFunc(words, forShell.MatchString)
	if i < 1 || filepath.Base(words[0]) == "expr" { // expr has operators of its own
		return nil
	}
	return &probe.FieldError{Field: "command", Problem: fmt.Sprintf("has the argument %q, but there is no shell to interpret it", words[i]),
		Hint: `write command = ["/bin/sh", "-c", "…"] with all of it in one string`}
}

// shells are the programs whose option -c is followed by a script and its arguments.
var shells = []string{"sh", "bash", "dash", "ash", "zsh", "ksh"}

// unusedWords warns about words after a shell's script that the script does not use, since it contains no $.
func unusedWords(words []string, flag int) error {
	if flag != 1 || len(words) < 4 || !slices.Contains(shells, filepath.Base(words[0])) || strings.Contains(words[2], "$") {
		return nil
	}
	return &probe.FieldError{Field: "command", Problem: fmt.Sprintf("has the argument %q, which the script %q of %s -c does not use", words[3], words[2], filepath.Base(words[0])),
		Hint: "write the script in one string: command = [" + strconv.Quote(words[0]) + `, "-c", ` + strconv.Quote(strings.Join(words[2:], " ")) + "]"}
}

// machine returns a phrase that names this machine.
func machine() string {
	name, err := os.Hostname()
	if err != nil {
		return "this machine"
	}
	return "machine " + name
}

// methods are the HTTP methods in use: those of RFC 9110, PATCH, and the read-only ones of WebDAV.
var methods = []string{"GET", "HEAD", "POST", "PUT", "PATCH", "DELETE", "OPTIONS", "TRACE", "PROPFIND", "REPORT", "SEARCH", "QUERY"}

// warnOfHTTP returns warnings about an http block: a URL as path, an unknown method, the port of https without TLS, and the
// host.
func warnOfHTTP(v config.Values, _ probe.Target) error {
	var warnings probe.FieldErrors
	path, _ := v["path"].(string)
	if u, err := url.Parse(path); strings.Contains(path, "://") && err == nil && u.Host != "" {
		only := cmp.Or(u.EscapedPath(), "/")
		if u.RawQuery != "" {
			only += "?" + u.RawQuery
		}
		warnings = append(warnings, &probe.FieldError{
			Field: "path", Problem: "is a URL, of which only the path and the query are used",
			Hint: fmt.Sprintf("write path = %q; host, port and scheme are arguments of their own, and default to those of the target", only),
		})
	}
	method, _ := v["method"].(string)
	if name := strings.ToUpper(method); name != "" && !slices.Contains(methods, name) {
		hint := "write one of " + strings.Join(methods[:6], ", ")
		if near := suggest.Nearest(name, methods); near != "" {
			hint = fmt.Sprintf("did you mean %q?", near)
		}
		warnings = append(warnings, &probe.FieldError{Field: "method", Problem: fmt.Sprintf("is %q, which is not a method of HTTP", method), Hint: hint})
	}
	scheme, _ := v["scheme"].(string)
	if port, _ := v["port"].(string); scheme == "" && slices.Contains([]string{"443", "8443", "https"}, port) || port == "443" && strings.EqualFold(scheme, "http") {
		warnings = append(warnings, &probe.FieldError{Field: "port", Problem: "is that of https, but the request is plain http", Hint: `add scheme = "https", or scheme = "http" if this port speaks that`})
	}
	return errors.Join(warnings.Err(), warnOfHost(v))
}

// warnOfTCP returns warnings about a tcp block.
func warnOfTCP(v config.Values, _ probe.Target) error {
	text, _ := v["expect_regex"].(string)
	re, err := syntax.Parse(text, syntax.Perl)
	if err != nil || !endsEarly(re) {
		return warnOfHost(v)
	}
	return errors.Join(warnOfHost(v), &probe.FieldError{
		Field: "expect_regex", Problem: "ends with $, \\z or \\b, but is matched against the data received so far: a partial response can match",
		Hint: `write what comes next, such as the end of the line: "OK\\r?\\n" rather than "OK$"`,
	})
}

// endsEarly reports whether an expression ends with $, \z or \b. These also match at the end of a response that is still
// incomplete. After a line break they are harmless: more text follows only if there is another line.
func endsEarly(re *syntax.Regexp) bool {
	last := len(re.Sub) - 1
	switch re.Op {
	case syntax.OpEndText, syntax.OpEndLine, syntax.OpWordBoundary:
		return true
	case syntax.OpConcat:
		return endsEarly(re.Sub[last]) && !endsInBreak(re.Sub[last-1])
	case syntax.OpAlternate:
		return slices.ContainsFunc(re.Sub, endsEarly)
	case syntax.OpCapture, syntax.OpQuest, syntax.OpStar, syntax.OpPlus, syntax.OpRepeat:
		return endsEarly(re.Sub[0])
	}
	return false
}

func endsInBreak(re *syntax.Regexp) bool {
	switch re.Op {
	case syntax.OpLiteral:
		return re.Rune[len(re.Rune)-1] == '\n'
	case syntax.OpCapture, syntax.OpPlus:
		return endsInBreak(re.Sub[0])
	case syntax.OpConcat:
		return endsInBreak(re.Sub[len(re.Sub)-1])
	}
	return false
}

// warnOfHostName returns warnings about the host of an icmp block.
func warnOfHostName(v config.Values, _ probe.Target) error { return warnOfHost(v) }

// warnOfICMP returns warnings about an icmp block, including one if this process is not allowed to send echo requests.
func warnOfICMP(v config.Values, _ probe.Target) error {
	err := icmpprobe.Permission()
	if err == nil {
		return warnOfHost(v)
	}
	return errors.Join(warnOfHost(v), fmt.Errorf("each attempt would be unknown: %w; ignore this if the engine runs elsewhere, or as another user: it was tried on %s", err, machine()))
}

// warnOfNetwork returns a warning about a network in which this process cannot open a socket.
func warnOfNetwork(n probe.Network) error {
	lacks, ok := errors.AsType[*nonblock.NetworkError](nonblock.Try(n))
	if !ok {
		return nil
	}
	return &probe.FieldError{
		Field: lacks.Field, Problem: fmt.Sprintf("cannot be used: %v", lacks),
		Hint: fmt.Sprintf("each attempt would be unknown; ignore this if the engine runs elsewhere, or as another user: it was tried on %s", machine()),
	}
}

func warnOfHost(v config.Values) error {
	host, _ := v["host"].(string)
	if a, err := netip.ParseAddr(host); err == nil && a.IsLinkLocalUnicast() && a.Is4() || host == "metadata.google.internal" || host == "fd00:ec2::254" {
		return &probe.FieldError{Field: "host", Problem: fmt.Sprintf("is %q, where clouds serve the metadata and the credentials of this machine", host), Hint: "remove it: a probe asks the target unless host says otherwise"}
	}
	if !dial.IsMistypedIPv4(host) {
		return nil
	}
	return &probe.FieldError{Field: "host", Problem: fmt.Sprintf("is %q, which is neither an IP address nor a host name", host), Hint: dial.IPv4Hint}
}
