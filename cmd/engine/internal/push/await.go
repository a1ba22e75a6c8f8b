package push

import (
	"context"
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

// lookPeriod is the time between two looks at what the engines have answered.
const lookPeriod = 200 * time.Millisecond

// await waits until all engines that are to run a revision use it or have refused it, and writes which.
func (f *fleet) await(ctx context.Context, out, errs io.Writer, r revision.Revision, timeout time.Duration) error {
	ctx, cancel := context.WithTimeout(ctx, timeout)
	defer cancel()
	var last answers // as far as they are known
	for {
		seen, err := revision.Read(ctx, f.Store)
		if err == nil {
			if last = answersTo(r, seen); last.isReplaced {
				return fmt.Errorf("%s was replaced by another push before all engines had answered", nameOf(r))
			}
			if len(last.waiting) == 0 {
				return last.write(out, errs, r)
			}
		}
		select {
		case <-time.After(lookPeriod):
			continue
		case <-ctx.Done():
		}
		if len(last.waiting) == 0 {
			return fmt.Errorf("%s is stored; it is not known which engines use it: %w; sonde-fleet cluster members shows them", nameOf(r), f.Advise(err))
		}
		_ = last.write(out, errs, r) // the other answers
		return fmt.Errorf("%s is stored; it is not known yet whether these engines use it: %s; sonde-fleet cluster members shows it", nameOf(r), cli.SomeNames(last.waiting))
	}
}

// nameOf says which revision it is.
func nameOf(r revision.Revision) string {
	if r.Engine != "" {
		return fmt.Sprintf("the trial of revision %d", r.Number)
	}
	return fmt.Sprintf("revision %d", r.Number)
}

// answers are those of the engines that are to run a revision, sorted by name.
type answers struct {
	using      []string
	refused    []revision.Engine
	waiting    []string
	isReplaced bool // engines are to run another one
}

func answersTo(r revision.Revision, seen revision.Overview) (a answers) {
	a.isReplaced = seen.Wanted(r.Engine).Ref() != r.Ref()
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
		a.waiting = append(a.waiting, shown(r.Engine)) // it has been restarted, or has ended
	}
	return a
}

// write writes the answers. It is an error if an engine has refused the revision.
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
	state := "is current"
	if r.Engine != "" {
		state = "is stored"
	}
	if n := len(a.refused); n > 0 {
		return &cli.ExitError{Code: exitRefused, Err: fmt.Errorf("%s %s; %d of %s refused it; sonde-fleet cluster rollback takes it away",
			nameOf(r), state, n, cli.Plural(n+len(a.using)+len(a.waiting), "engine"))}
	}
	if len(a.waiting) > 0 {
		return nil
	}
	use := "in use by " + cli.Plural(len(a.using), "engine")
	if len(a.using) == 0 {
		use = "and no engine follows the configuration now"
	}
	_, err := fmt.Fprintf(out, "%s %s, %s\n", nameOf(r), state, use)
	return err
}

// shown returns the name of an engine, which all who can write to the store can choose, as people are shown it.
func shown(name string) string { return probe.OneLine(name, probe.MaxGroupName) }
