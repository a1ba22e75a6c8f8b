package cluster

import (
	"context"
	"errors"
	"fmt"
	"io"
	"strings"
	"time"

	"github.com/sonde-probe/sonde/cmd/engine/internal/cli"
	"github.com/sonde-probe/sonde/fleet/revision"
	"github.com/sonde-probe/sonde/probe"
)

// exitRefused is the exit code of a push that an engine refuses.
const exitRefused = 3

// lookPeriod is the interval at which the engines' responses are polled.
const lookPeriod = 200 * time.Millisecond

// await waits until all engines intended to run a revision use it or have refused it, and writes their responses.
func (s *store) await(ctx context.Context, out, errs io.Writer, progress *cli.Progress, r revision.Revision, timeout time.Duration) error {
	ctx, cancel := context.WithTimeout(ctx, timeout)
	defer cancel()
	var last answers // as far as known
	for {
		seen, err := revision.Read(ctx, s.Store)
		if err == nil {
			if last = answersTo(r, seen); last.isReplaced {
				return fmt.Errorf("%s was replaced by another push before all engines had responded", nameOf(r))
			}
			if len(last.waiting) == 0 {
				progress.Stop()
				return last.write(out, errs, r)
			}
			progress.Step("waiting for " + cli.SomeNames(last.waiting))
		}
		select {
		case <-time.After(lookPeriod):
			continue
		case <-ctx.Done():
		}
		if len(last.waiting) == 0 {
			return fmt.Errorf("%s is stored, but it is unknown which engines use it: %w; see sonde-fleet cluster members", nameOf(r), s.advise(err))
		}
		progress.Stop()
		return last.write(out, errs, r)
	}
}

// nameOf returns a phrase that names a revision or trial.
func nameOf(r revision.Revision) string {
	if r.Engine != "" {
		return fmt.Sprintf("the trial of revision %d", r.Number)
	}
	return fmt.Sprintf("revision %d", r.Number)
}

// answers are the responses of the engines that are intended to run a revision, sorted by name.
type answers struct {
	using       []string
	refused     []revision.Engine
	waiting     []string
	isReplaced  bool // another revision is now intended for the engines
	canRollBack bool // rollback works without a revision number
}

func answersTo(r revision.Revision, seen revision.Overview) (a answers) {
	a.isReplaced = seen.Wanted(r.Engine).Ref() != r.Ref()
	a.canRollBack = r.Engine != "" || len(seen.History) > 1
	isFound := false
	for _, e := range seen.Engines {
		if seen.Wanted(e.Name).Ref() != r.Ref() {
			continue
		}
		isFound = true
		switch {
		case e.Running == r.Ref():
			a.using = append(a.using, shown(e.Name))
		case e.HasRefused(r.Ref()):
			a.refused = append(a.refused, e)
		default:
			a.waiting = append(a.waiting, shown(e.Name))
		}
	}
	if r.Engine != "" && !isFound {
		a.waiting = append(a.waiting, shown(r.Engine)) // the engine has exited or is restarting
	}
	return a
}

// write writes the responses. It returns the error of problem.
func (a answers) write(out, errs io.Writer, r revision.Revision) error {
	for _, name := range a.using {
		fmt.Fprintf(out, "%s uses it\n", name)
	}
	for _, e := range a.refused {
		fmt.Fprintf(errs, "%s refuses it, and keeps what it runs:\n", shown(e.Name))
		for line := range strings.Lines(probe.CleanText(e.Refused.Error, revision.MaxError)) {
			fmt.Fprintf(errs, "  %s\n", strings.TrimSuffix(line, "\n"))
		}
	}
	state := nameOf(r) + " is current"
	if r.Engine != "" {
		state = nameOf(r) + " is stored"
	}
	if err := a.problem(state); err != nil {
		return err
	}
	use := "in use by " + cli.Plural(len(a.using), "engine")
	if len(a.using) == 0 {
		use = "and no engine follows the configuration now"
	}
	_, err := fmt.Fprintf(out, "%s, %s\n", state, use)
	return err
}

// problem returns an error if an engine has refused the revision or has not responded. The exit code is exitRefused if any
// engine has refused it. The error's text begins with state.
func (a answers) problem(state string) error {
	problems := []string{state}
	if n := len(a.refused); n > 0 {
		remedy := "undo it with sonde-fleet cluster rollback"
		if !a.canRollBack {
			remedy = "correct the files and push again"
		}
		all := n + len(a.using) + len(a.waiting)
		problems = append(problems, fmt.Sprintf("%d of %s refused it; %s", n, cli.Plural(all, "engine"), remedy))
	}
	if len(a.waiting) > 0 {
		problems = append(problems, fmt.Sprintf("these engines have not responded yet: %s; see sonde-fleet cluster members", cli.SomeNames(a.waiting)))
	}
	err := errors.New(strings.Join(problems, "; "))
	switch {
	case len(a.refused) > 0:
		return &cli.ExitError{Code: exitRefused, Err: err}
	case len(problems) > 1:
		return err
	}
	return nil
}
