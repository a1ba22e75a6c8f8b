package peerimport

import (
	"cmp"
	"errors"
	"fmt"
	"maps"
	"regexp"
	"slices"
	"strconv"
	"strings"

	"github.com/sonde-probe/sonde/config/document"
	"github.com/sonde-probe/sonde/internal/command"
)

// maxProcesses limits numprocs of a program.
const maxProcesses = 100

var programHeader = regexp.MustCompile(`(?m)^\[program:[^\]]+\]`)

func isSupervisord(text []byte) bool { return programHeader.Match(text) }

// supervisord converts the programs of a supervisord.conf.
func (w *writer) supervisord(text []byte) error {
	sections, err := parseINI(string(text))
	if err != nil {
		return err
	}
	w.doc.Comment("supervisord restarts a program that exits. Add probe \"liveness\" blocks, so that one that hangs is restarted, too.")
	whole, groups := &section{used: map[string]bool{}}, map[string]string{}
	var ignored []string
	for _, s := range sections {
		kind, name, _ := strings.Cut(s.name, ":")
		switch kind {
		case "supervisord":
			whole = s
		case "group":
			for program := range strings.SplitSeq(s.take("programs"), ",") {
				groups[strings.TrimSpace(program)] = name
			}
		case "program":
		default:
			ignored = append(ignored, "["+s.name+"]")
		}
	}
	if len(ignored) > 0 {
		w.warn("", &w.doc.Body, "Not converted: %s.", strings.Join(ignored, ", "))
	}
	for _, s := range sections {
		if name, isProgram := strings.CutPrefix(s.name, "program:"); isProgram {
			if err := w.program(&program{section: s, whole: whole, name: name, group: groups[name]}); err != nil {
				return fmt.Errorf("[%s]: %w", s.name, err)
			}
		}
	}
	return nil
}

// program is a program section.
type program struct {
	*section
	whole       *section // [supervisord]
	name, group string
	number      int // of the process, for a program with several processes
}

// program writes the targets of a program, one for each of its processes.
func (w *writer) program(p *program) error {
	if p.take("command") == "" {
		return errors.New("it has no command")
	}
	n, err := p.integer("numprocs", 1)
	if err != nil {
		return err
	}
	first, err := p.integer("numprocs_start", 0)
	if err != nil {
		return err
	}
	if n < 1 || n > maxProcesses {
		return fmt.Errorf("numprocs is %d: write a target with for_each for more than %d", n, maxProcesses)
	}
	template := cmp.Or(p.take("process_name"), "%(program_name)s")
	if n > 1 && !strings.Contains(template, "process_num") {
		return errors.New("process_name lacks %(process_num)d")
	}
	for p.number = first; p.number < first+n; p.number++ {
		name, err := p.expand(template)
		if err != nil {
			return err
		}
		d := w.draft("["+p.section.name+"]", name)
		p.write(d)
		d.end()
	}
	return nil
}

func (p *program) integer(key string, normal int) (int, error) {
	text := p.take(key)
	if text == "" {
		return normal, nil
	}
	n, err := strconv.Atoi(text)
	if err != nil {
		return 0, fmt.Errorf("%s is %q: it must be a number", key, text)
	}
	return n, nil
}

// write writes the target of a process.
func (p *program) write(d *draft) {
	if p.group != "" {
		d.body.Set("labels", map[string]string{"group": p.group})
	}
	p.process(d, d.body.Block("process"))
	if signal := p.take("stopsignal"); signal != "" && signal != "TERM" {
		d.body.Set("stop_signal", signal)
	}
	d.body.Set("termination_grace_period", cmp.Or(p.take("stopwaitsecs"), "10")+"s")
	p.policy(d)
	if p.take("autostart") == "false" {
		d.leaveOut("autostart is false, and the engine starts each target; with state, sonde stop %s holds", p.name)
	}
	for key, instead := range map[string]string{
		"startsecs":    "a startup probe checks that a program works",
		"startretries": "starts go on, ever more rarely: see back_off",
		"priority":     "start_after says which targets must be ready before",
	} {
		if p.given(key) {
			p.take(key)
			d.warn("Ignored: %s; %s.", key, instead)
		}
	}
	p.take("stopasgroup") // in Sonde, all descendants end with a process
	p.take("killasgroup")
	var left []string
	for _, key := range slices.Sorted(maps.Keys(p.values)) {
		if !p.used[key] {
			left = append(left, key)
		}
	}
	if len(left) > 0 {
		d.warn("Ignored: %s.", strings.Join(left, ", "))
	}
}

// process writes the process block.
func (p *program) process(d *draft, body *document.Body) {
	text, err := p.expand(p.take("command"))
	argv, wrong := words(text, " \t\n")
	if err = cmp.Or(err, wrong); err != nil {
		d.leaveOut("command: %v", err)
	}
	for i, word := range argv {
		argv[i] = command.Escape(word, func(string) bool { return true })
	}
	body.Set("command", argv)
	if env := p.environment(d); len(env) > 0 {
		body.Set("env", env)
	}
	for _, f := range []struct{ key, name string }{{"directory", "dir"}, {"user", "user"}, {"umask", "umask"}} {
		value, err := p.expand(cmp.Or(p.take(f.key), p.whole.take(f.key)))
		if err != nil {
			d.leaveOut("%s: %v", f.key, err)
		}
		if value != "" {
			body.Set(f.name, value)
		}
	}
	p.logs(d, body)
}

// environment returns the variables of a program, including those of [supervisord].
func (p *program) environment(d *draft) map[string]string {
	env := map[string]string{}
	for _, text := range []string{p.whole.take("environment"), p.take("environment")} {
		text, err := p.expand(text)
		pairs, wrong := words(text, ",\n")
		if err = cmp.Or(err, wrong); err != nil {
			d.leaveOut("environment: %v", err)
		}
		for _, pair := range pairs {
			name, value, hasValue := strings.Cut(pair, "=")
			if !hasValue {
				d.leaveOut("environment: %q is no NAME=\"value\"", pair)
			}
			env[strings.TrimSpace(name)] = command.Escape(value, func(string) bool { return true })
		}
	}
	return env
}

// logs writes the log block. Without one, the output goes to the engine's log.
func (p *program) logs(d *draft, body *document.Body) {
	file, err := p.expand(p.take("stdout_logfile"))
	if err != nil {
		d.leaveOut("stdout_logfile: %v", err)
	}
	size, files := p.take("stdout_logfile_maxbytes"), p.take("stdout_logfile_backups")
	p.take("redirect_stderr") // log contains both streams
	if other := p.take("stderr_logfile"); other != "" && other != "AUTO" && other != "NONE" && other != file {
		d.warn("Ignored: stderr_logfile; log has both streams.")
	}
	switch file {
	case "", "AUTO", "NONE":
		return
	case "/dev/stdout", "/dev/fd/1", "/proc/self/fd/1":
		body.BlockOf("log", document.Argument{Name: "stdout", Value: true})
		return
	}
	log := body.Block("log")
	log.Set("file", file)
	if bytes, isSize := sizeOf(cmp.Or(size, "50MB")); isSize && bytes > 0 {
		log.Set("max_size", sizeText(max(bytes, 64<<10)))
	} else {
		d.warn("Ignored: stdout_logfile_maxbytes = %s; the file begins anew at the default of max_size.", size)
	}
	if n, err := strconv.Atoi(cmp.Or(files, "10")); err == nil {
		log.Set("max_files", n+1) // including the current file
	}
}

// sizeOf parses a size in the format of supervisord.
func sizeOf(text string) (bytes int, ok bool) {
	unit := 1
	for i, suffix := range []string{"KB", "MB", "GB"} {
		if number, has := strings.CutSuffix(strings.ToUpper(text), suffix); has {
			text, unit = number, 1<<(10*(i+1))
		}
	}
	n, err := strconv.Atoi(strings.TrimSpace(text))
	return n * unit, err == nil && n <= 1<<20
}

// sizeText formats a size for a configuration, rounded down to KiB.
func sizeText(bytes int) string {
	if bytes%(1<<20) == 0 {
		return strconv.Itoa(bytes>>20) + "MiB"
	}
	return strconv.Itoa(bytes>>10) + "KiB"
}

// policy writes the restart policy of the process.
func (p *program) policy(d *draft) {
	codes := cmp.Or(strings.ReplaceAll(p.take("exitcodes"), " ", ""), "0")
	switch restart := strings.ToLower(cmp.Or(p.take("autorestart"), "unexpected")); restart {
	case "true", "1", "yes", "on":
		d.body.Set("restart_policy", "always")
	case "false", "0", "no", "off":
		d.body.Set("restart_policy", "never")
	case "unexpected":
		if codes == "0" {
			d.body.Set("restart_policy", "on_failure")
			return
		}
		others, err := complement(codes)
		if err != nil {
			d.leaveOut("exitcodes: %v", err)
		}
		d.body.Set("restart_policy", "never")
		d.body.Set("restart_exit_codes", others)
	default:
		d.leaveOut("autorestart is %q: it must be true, unexpected or false", restart)
	}
}

// complement returns the exit statuses that are not in a list, as ranges.
func complement(codes string) ([]string, error) {
	expected := [256]bool{}
	for text := range strings.SplitSeq(codes, ",") {
		n, err := strconv.Atoi(text)
		if err != nil || n < 0 || n > 255 {
			return nil, fmt.Errorf("%q is no exit status", text)
		}
		expected[n] = true
	}
	return ranges(0, len(expected), func(n int) bool { return !expected[n] }), nil
}

var expansion = regexp.MustCompile(`%(?:%|\(([^)]*)\)(0?\d{0,2})([sd]))`)

// expand replaces expressions such as %(process_num)02d.
func (p *program) expand(text string) (string, error) {
	var unknown error
	known := map[string]any{"program_name": p.name, "group_name": cmp.Or(p.group, p.name), "process_num": p.number}
	expanded := expansion.ReplaceAllStringFunc(text, func(match string) string {
		parts := expansion.FindStringSubmatch(match)
		value, isKnown := known[parts[1]]
		switch env, isEnv := strings.CutPrefix(parts[1], "ENV_"); {
		case match == "%%":
			return "%"
		case isKnown:
			return fmt.Sprintf("%"+parts[2]+"v", value)
		case isEnv:
			unknown = fmt.Errorf("%s depends on the environment: write env(%q)", match, env)
		default:
			unknown = fmt.Errorf("%s is not known", match)
		}
		return match
	})
	return expanded, unknown
}
