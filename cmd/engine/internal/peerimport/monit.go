package peerimport

import (
	"cmp"
	"errors"
	"fmt"
	"regexp"
	"slices"
	"strconv"
	"strings"
	"time"

	"github.com/sonde-probe/sonde/config/document"
	"github.com/sonde-probe/sonde/internal/command"
	"github.com/sonde-probe/sonde/probe"
)

var checkStatement = regexp.MustCompile(`(?im)^\s*check\s+(process|host|program|system|file|filesystem|directory|network|fifo)\s`)

func isMonit(text []byte) bool { return checkStatement.Match(text) }

// monitPeriod is monit's default length of a cycle, without set daemon.
const monitPeriod = 30 * time.Second

// monit converts the checks of a monitrc.
func (w *writer) monit(text []byte) error {
	all, err := tokens(string(text))
	if err != nil {
		return err
	}
	cycle := monitPeriod
	var services []*service
	for _, s := range statements(all) {
		switch {
		case s[0].is("set") && len(s) > 2 && s[1].is("daemon"):
			seconds, err := strconv.Atoi(s[2].text)
			if err != nil || seconds < 1 || seconds > 366*24*3600 {
				return fmt.Errorf("line %d: set daemon %s: it must be a number of seconds", s[0].line, s[2].text)
			}
			cycle = time.Duration(seconds) * time.Second
		case s[0].is("check"):
			if len(s) < 3 {
				return fmt.Errorf("line %d: check needs a kind and a name", s[0].line)
			}
			services = append(services, &service{kind: strings.ToLower(s[1].text), name: s[2].text, check: s, every: 1})
		case len(services) == 0 || s[0].is("set", "include"):
			w.warn("", &w.doc.Body, "Not converted: %s.", s.text())
		default:
			services[len(services)-1].add(s)
		}
	}
	if len(services) == 0 {
		return errors.New("it has no check")
	}
	for _, s := range services {
		s.period = cycle * time.Duration(s.every)
		s.write(w)
	}
	return nil
}

// service is a check statement together with the statements that belong to it.
type service struct {
	kind, name           string
	check                statement
	start, stop, restart statement
	depends, groups      []string
	tests                []statement
	others               []statement // statements that are not converted
	every                int         // in cycles
	period               time.Duration
	probes               map[string]int // number of probes by kind and name
}

// add adds a statement that follows the check.
func (s *service) add(st statement) {
	words := func() (all []string) {
		for _, t := range st[1:] {
			all = append(all, t.text)
		}
		return all
	}
	switch cycles, _ := strconv.Atoi(st.after("every")); {
	case st[0].is("start"):
		s.start = st
	case st[0].is("stop"):
		s.stop = st
	case st[0].is("restart"):
		s.restart = st
	case st[0].is("depends"):
		s.depends = append(s.depends, words()...)
	case st[0].is("group"):
		s.groups = append(s.groups, words()...)
	case st[0].is("if"):
		s.tests = append(s.tests, st)
	case st[0].is("every") && cycles > 0 && cycles < 10000:
		s.every = cycles
	default:
		s.others = append(s.others, st)
	}
}

// write writes the target of the service.
func (s *service) write(w *writer) {
	d := w.draft("check "+s.kind+" "+s.name, s.name)
	defer d.end()
	s.probes = map[string]int{}
	if len(s.groups) > 0 {
		d.body.Set("labels", map[string]string{"group": strings.Join(s.groups, ",")})
	}
	if len(s.depends) > 0 {
		d.body.Set("depends_on", s.depends)
	}
	switch s.kind {
	case "process":
		s.process(d)
	case "host":
		d.body.Set("address", s.check.after("address"))
	case "program":
		s.program(d)
	default:
		d.leaveOut("Sonde checks no %s itself: write an exec probe with a command that does", s.kind)
		return
	}
	for _, t := range s.tests {
		s.test(d, t)
	}
	for _, st := range s.others {
		d.warn("Ignored: %s.", st.text())
	}
}

// process writes the restart block of a process, and the probe that checks whether it exists.
func (s *service) process(d *draft) {
	d.body.Set("address", "127.0.0.1")
	if argv := s.restartCommand(d); argv != nil {
		d.body.BlockOf("restart", document.Argument{Name: "command", Value: argv})
	}
	var argv []string
	switch pidfile, pattern := s.check.after("pidfile"), s.check.after("matching"); {
	case pidfile != "":
		argv = []string{"/bin/sh", "-c", "read pid < " + shellQuoted(pidfile) + " && test -d /proc/$pid"}
	case pattern != "":
		argv = []string{"pgrep", "-f", "--", pattern}
	default:
		d.leaveOut("it has neither pidfile nor matching")
	}
	part := d.part()
	defer part.end()
	body := s.probe(part, "liveness", "exists")
	body.BlockOf("exec", document.Argument{Name: "command", Value: escapedWords(argv)})
	s.rule(body, 1, 0)
}

// restartCommand returns the command that restarts the service, or nil if monit has no command to start it.
func (s *service) restartCommand(d *draft) []string {
	program := func(st statement) (argv []string) {
		if st == nil {
			return nil
		}
		text := ""
		for _, t := range st[1:] {
			if t.quoted || !t.is("program", "=", "==") {
				text = t.text
				break
			}
		}
		if st.has("uid", "gid") {
			d.warn("Ignored: the user of %s; see user of the restart block.", st.text())
		}
		argv, err := words(text, " \t\n")
		if err != nil {
			d.leaveOut("%s: %v", st.text(), err)
		}
		return argv
	}
	if argv := program(s.restart); argv != nil {
		return escapedWords(argv)
	}
	start, stop := program(s.start), program(s.stop)
	switch {
	case start == nil:
		return nil
	case stop == nil:
		return escapedWords(start)
	}
	return []string{"/bin/sh", "-c", command.Escape(shellWords(stop)+"; "+shellWords(start), anyName)}
}

// program writes the exec probe of a program.
func (s *service) program(d *draft) {
	argv, err := words(s.check.after("path"), " \t\n")
	if err != nil || len(argv) == 0 {
		d.leaveOut("its path is no command")
	}
	failures, wanted := 1, ""
	for _, t := range s.tests {
		if t.has("status") && t.has("!=") {
			failures, wanted = cycles(t), t.after("!=")
		}
	}
	s.tests = slices.DeleteFunc(s.tests, func(t statement) bool { return t.has("status") && t.after("!=") == "0" })
	part := d.part()
	defer part.end()
	if wanted != "" && wanted != "0" {
		part.lose("a status other than 0 as success")
	}
	body := s.probe(part, "readiness", "")
	body.BlockOf("exec", document.Argument{Name: "command", Value: escapedWords(argv)})
	timeout, _ := strconv.Atoi(s.check.after("timeout"))
	s.rule(body, failures, cmp.Or(timeout, 300)) // 300 is monit's default
}

// test writes the probe for an if statement.
func (s *service) test(d *draft, t statement) {
	action := strings.ToLower(t.after("then"))
	switch {
	case t.has("exist"):
		return // covered by the probe "exists"
	case t.has("restarts") && action == "unmonitor":
		d.warn("Ignored: %s. Restarts become rarer instead: see back_off, and restart_budget of the engine.", t.text())
		return
	case len(t) > 1 && t[1].is("failed") && s.kind != "program":
	default:
		d.warn("Ignored: %s.", t.text())
		return
	}
	kind := "readiness"
	if action == "restart" && s.kind == "process" {
		kind = "liveness"
	} else if action != "alert" {
		d.warn("Instead of %s the probe takes the target out of rotation and causes a notice: %s.", action, t.text())
	}
	s.connection(d, kind, t)
}

// probe begins a probe, with a name that is unique among probes of its kind.
func (s *service) probe(d *draft, kind, name string) *document.Body {
	if s.probes[kind+name]++; s.probes[kind+name] > 1 {
		name = cmp.Or(name, "check") + "-" + strconv.Itoa(s.probes[kind+name])
	}
	if name == "" {
		return d.body.Block("probe", kind)
	}
	return d.body.Block("probe", kind, name)
}

// rule writes the times and the threshold of a probe. timeout is in seconds; 0 means Sonde's default.
func (s *service) rule(body *document.Body, failures, timeout int) {
	body.Set("period", probe.FormatDuration(s.period))
	if timeout > 0 {
		body.Set("timeout", probe.FormatDuration(time.Duration(timeout)*time.Second))
	}
	body.Set("failure_threshold", failures)
}

// cycles returns the number of failures that a test needs, as in "for 3 cycles" or "3 times within 5 cycles", else 1.
func cycles(t statement) int {
	for i, word := range t[1:] {
		n, err := strconv.Atoi(t[i].text)
		if err == nil && n > 0 && n < 10000 && word.is("cycle", "cycles", "times") {
			return n
		}
	}
	return 1
}

func anyName(string) bool { return true }

func escapedWords(argv []string) []string {
	escaped := make([]string, len(argv))
	for i, word := range argv {
		escaped[i] = command.Escape(word, anyName)
	}
	return escaped
}

func shellWords(argv []string) string {
	quoted := make([]string, len(argv))
	for i, word := range argv {
		quoted[i] = shellQuoted(word)
	}
	return strings.Join(quoted, " ")
}

var plainWord = regexp.MustCompile(`^[A-Za-z0-9_@%+=:,./-]+$`)

// shellQuoted quotes a word for a shell if necessary.
func shellQuoted(word string) string {
	if plainWord.MatchString(word) {
		return word
	}
	return command.Quote(word)
}
