// Package render writes a file for a gateway from a template when members change, and runs a
// command, such as one that reloads the gateway.
//
//	render.go  renderer: when it writes and runs
//	data.go    what templates see
//	steps.go   bounds how long a template executes
package render

import (
	"bytes"
	"cmp"
	"context"
	"errors"
	"fmt"
	"io/fs"
	"maps"
	"os"
	"reflect"
	"regexp"
	"slices"
	"strings"
	"text/template"
	"time"

	"github.com/sonde-probe/sonde/gateway"
	"github.com/sonde-probe/sonde/group"
	"github.com/sonde-probe/sonde/internal/command"
	"github.com/sonde-probe/sonde/internal/files"
	"github.com/sonde-probe/sonde/internal/limits"
	"github.com/sonde-probe/sonde/internal/private"
	"github.com/sonde-probe/sonde/probe"
)

// Config configures the output.
type Config struct {
	Template string        `hcl:"template" doc:"text of the template, in the language of Go's text/template; file(\"upstream.tmpl\") reads it from a file. It sees .Members and .InRotation of all groups, and .Groups with .Name, .State, .Panicking, .Members and .InRotation; a member has .Target, .Name, .Address, .Port, .HostPort, .State, .InRotation, .Weight, .Labels and .Reason. If the text has .Address or .HostPort, members without an address are left out, and the gateway fails for their group"`
	Path     string        `hcl:"path,path" doc:"file that is written, beside itself first and then renamed, so that readers see the old text or the new one; a relative path starts at the working directory. In a directory of another user, or one that others can write to, a symbolic link is not followed"`
	Command  []string      `hcl:"command,optional" doc:"program and its arguments that run after each change of the file, and once when the engine has started. There is no shell unless the command names one. It has failed unless its exit status is 0, and is run again then" default:"none"`
	Interval time.Duration `hcl:"interval,optional,nonzero" doc:"least time from one run of the command to the next; what has changed meanwhile is in the next one" default:"1s" min:"10ms" max:"1h"`
	Timeout  time.Duration `hcl:"timeout,optional,nonzero" doc:"time after which the command is killed with its descendants, and has failed" default:"10s" min:"10ms" max:"1h"`
}

// Defaults of a Config.
const (
	defaultInterval = time.Second
	defaultTimeout  = 10 * time.Second
)

const (
	maxRetry  = 30 * time.Second // between attempts after failures; they begin at the interval, and double
	maxText   = 16 << 20         // bytes of the file
	maxOutput = 1 << 10          // bytes of the command's output that an error shows
	fileMode  = 0o644            // of a new file
	source    = "file"           // of all failures: the file is the only one
)

// Check returns what is wrong with the configuration: a *probe.FieldError, or several.
func (c Config) Check() error {
	wrong := limits.Check(c, "")
	if c.Path == "" {
		wrong.Add("path", "must not be empty")
	} else if private.IsOfSystem(c.Path) {
		wrong.Add("path", "is %q, a file of the operating system", c.Path)
	}
	if t, err := parseTemplate(c.Template); err != nil {
		wrong.Add("template", "is not valid: %s", strings.TrimPrefix(err.Error(), "template: "))
	} else if _, err := execute(t, example); errors.As(err, new(stepError)) || err != nil && strings.Contains(err.Error(), "can't evaluate field") {
		wrong = append(wrong, unknownField(err))
	}
	if c.Timeout != 0 && len(c.Command) == 0 {
		wrong.Add("timeout", "has no effect without command")
	}
	err := wrong.Err()
	if len(c.Command) > 0 {
		err = errors.Join(err, command.Command{Words: c.Command}.Check())
	}
	return err
}

var evaluated = regexp.MustCompile(`can't evaluate field (\w+) in type (\S*)`)

// unknownField returns the error about a template that could not be executed: what there is instead of an unknown field.
func unknownField(err error) *probe.FieldError {
	e := &probe.FieldError{Field: "template", Problem: "is not valid: " + strings.TrimPrefix(err.Error(), "template: ")}
	m := evaluated.FindStringSubmatch(err.Error())
	if m == nil {
		return e
	}
	for _, of := range []any{templateData{}, templateGroup{}, templateMember{}} {
		if t := reflect.TypeOf(of); strings.HasSuffix(m[2], t.String()) {
			var there []string
			for f := range t.Fields() {
				there = append(there, "."+f.Name)
			}
			for method := range t.Methods() {
				there = append(there, "."+method.Name)
			}
			e.Problem, e.Hint = fmt.Sprintf("has .%s, which does not exist there", m[1]), "what exists: "+strings.Join(there, ", ")
		}
	}
	return e
}

func parseTemplate(text string) (*template.Template, error) {
	t, err := template.New("template").Parse(text)
	if err != nil {
		return nil, err
	}
	return t, countSteps(t)
}

// renderer is an output that renders a template.
type renderer struct {
	config   Config
	template *template.Template
	address  bool // the template has addresses of members: those without one are left out

	left    map[string]error // what was last reported about members that are left out, by source
	applied []byte           // the text with which all has succeeded; nil before
	ran     time.Time        // when the latest attempt began
	retry   time.Duration    // how long the next attempt after a failure waits; 0 after a success
	stuck   <-chan struct{}  // closed when a killed command has ended; nil without one
}

// New returns an output that renders a template. The configuration must have passed Check.
func New(c Config) gateway.Output {
	c.Interval, c.Timeout = cmp.Or(c.Interval, defaultInterval), cmp.Or(c.Timeout, defaultTimeout)
	r := &renderer{config: c, address: addressField.MatchString(c.Template)}
	r.template, _ = parseTemplate(c.Template)
	return r
}

// Run implements gateway.Output. It does not return before a command that was killed has exited:
// another one must not run beside it.
func (r *renderer) Run(ctx context.Context, s *gateway.Session) {
	defer func() {
		if r.stuck != nil {
			<-r.stuck
		}
	}()
	for ctx.Err() == nil {
		views, kept := s.Views(), s.Kept()
		if slices.Contains(kept, nil) {
			group.AwaitReplaced(ctx, views)
			continue
		}
		text, err := execute(r.template, dataOf(kept, r.address))
		if err == nil && r.applied != nil && bytes.Equal(text, r.applied) {
			r.reportLeftOut(s, kept)
			group.AwaitReplaced(ctx, views)
			continue
		}
		if wait := r.config.Interval - time.Since(r.ran); !r.ran.IsZero() && wait > 0 {
			pause(ctx, wait)
			continue // with what has changed meanwhile
		}
		r.ran = time.Now()
		if err == nil {
			err = r.apply(ctx, text)
		}
		switch {
		case ctx.Err() != nil:
			return
		case err == nil:
			r.applied, r.retry = text, 0
			r.left = r.leftOut(kept)
			results := maps.Clone(r.left)
			results[source] = nil
			s.Report(results)
			continue
		}
		s.Failed(source, err)
		r.applied = nil // the gateway may have either text
		r.retry = min(max(2*r.retry, r.config.Interval), maxRetry)
		again := time.NewTimer(r.retry)
		group.AwaitReplaced(ctx, views, again.C)
		again.Stop()
	}
}

// leftOut returns the results for groups: an error that names the members that are left out, or nil.
func (r *renderer) leftOut(views []*group.View) map[string]error {
	results := map[string]error{}
	if r.address {
		for _, v := range views {
			results[gateway.SourceGroup(v.Group)] = gateway.WithoutAddress(v)
		}
	}
	return results
}

// reportLeftOut reports which members are left out, if others were before.
func (r *renderer) reportLeftOut(s *gateway.Session, views []*group.View) {
	now := r.leftOut(views)
	if !maps.EqualFunc(now, r.left, func(a, b error) bool { return fmt.Sprint(a) == fmt.Sprint(b) }) {
		r.left = now
		s.Report(now)
	}
}

func pause(ctx context.Context, d time.Duration) {
	select {
	case <-ctx.Done():
	case <-time.After(d):
	}
}

// execute returns what a template makes of data.
func execute(t *template.Template, d templateData) ([]byte, error) {
	var text bounded
	t, err := t.Clone()
	if err != nil {
		return nil, err
	}
	if err := t.Funcs(steps()).Execute(&text, d); err != nil {
		if tooMany, ok := errors.AsType[stepError](err); ok {
			return nil, tooMany
		}
		return nil, err
	}
	return text.Bytes(), nil
}

// bounded is a buffer of at most maxText bytes.
type bounded struct{ bytes.Buffer }

func (b *bounded) Write(p []byte) (int, error) {
	if b.Len()+len(p) > maxText {
		return 0, fmt.Errorf("the text is longer than %d bytes", maxText)
	}
	return b.Buffer.Write(p)
}

// apply writes the file, unless it has the text already, and runs the command.
func (r *renderer) apply(ctx context.Context, text []byte) error {
	if r.stuck != nil {
		select {
		case <-r.stuck:
			r.stuck = nil
		default:
			return errors.New("the command was killed but has not exited yet: waiting before running it again")
		}
	}
	if there, err := files.ReadRegular(r.config.Path, maxText); err != nil || !bytes.Equal(there, text) {
		mode := fs.FileMode(fileMode)
		if info, err := os.Stat(r.config.Path); err == nil {
			if !info.Mode().IsRegular() {
				return fmt.Errorf("%s is not a regular file and is not replaced; remove it, or give another path", r.config.Path)
			}
			mode = info.Mode().Perm()
		}
		if err := files.Replace(r.config.Path, text, mode); err != nil {
			return err
		}
	}
	if len(r.config.Command) == 0 {
		return nil
	}
	plan, err := command.Command{Words: r.config.Command}.Plan()
	if err != nil {
		return err
	}
	plan.MayDetach = true // a load balancer that it starts
	ctx, cancel := context.WithTimeout(ctx, r.config.Timeout)
	defer cancel()
	tail := &command.Output{Max: maxOutput, Last: true}
	end, err := plan.Run(ctx, tail, tail)
	r.stuck = end.Stuck
	switch {
	case err != nil:
		return fmt.Errorf("%s: %w", r.config.Command[0], err)
	case end.Killed:
		err = fmt.Errorf("killed after %v (timeout)%s", r.config.Timeout, end.Starved(r.config.Timeout))
	case end.Status != 0:
		err = errors.New(end.String())
	default:
		return nil
	}
	output := probe.OneLine(tail.String(), maxOutput)
	return fmt.Errorf("%s: %w: %s", r.config.Command[0], err, cmp.Or(output, "no output"))
}
