package push

import (
	"bufio"
	"context"
	"errors"
	"fmt"
	"io"
	"strings"
	"time"

	"github.com/spf13/cobra"

	"github.com/sonde-probe/sonde/cmd/engine/internal/access"
	"github.com/sonde-probe/sonde/cmd/engine/internal/cli"
	"github.com/sonde-probe/sonde/cmd/engine/internal/daemon"
	"github.com/sonde-probe/sonde/cmd/engine/internal/status"
	"github.com/sonde-probe/sonde/config"
	"github.com/sonde-probe/sonde/fleet/revision"
	"github.com/sonde-probe/sonde/probe"
)

// propose shows what a revision changes, asks, pushes it, and waits until the engines use it. Either configuration is
// nil if it cannot be read here.
func (f *flags) propose(c *cobra.Command, to *fleet, before, after *config.Config, r revision.Request) error {
	out := c.OutOrStdout()
	if before != nil && after != nil {
		plan, err := daemon.PlanChange(before, after)
		if err != nil {
			return err
		}
		if _, err := io.WriteString(out, status.PlanText(plan)); err != nil {
			return err
		}
		if plan.Error != nil && !(plan.Guarded && f.force) {
			return fmt.Errorf("engines would refuse it: %s%s", plan.Error.Message, forceHint(plan.Guarded))
		}
	}
	if !f.yes && !f.dryRun {
		if err := confirm(c, r.Base+1); err != nil {
			return err
		}
	}
	r.Author, r.Message, r.Force, r.Timeout, r.IgnoreSilent, r.CheckOnly = access.Author(), f.message, f.force, f.timeout, f.ignoreSilent, f.dryRun
	made, err := revision.Push(c.Context(), to.Store, r)
	if refused := (*revision.RefusedError)(nil); errors.As(err, &refused) {
		return showRefusals(c.ErrOrStderr(), refused)
	}
	if err != nil {
		return to.Advise(err)
	}
	if f.dryRun {
		_, err := fmt.Fprintln(out, dryRunText(made))
		return err
	}
	return to.awaitUse(c.Context(), out, c.ErrOrStderr(), made, f)
}

// dryRunText says what engines have answered to a proposal that is not pushed.
func dryRunText(r revision.Revision) string {
	var text string
	switch {
	case r.Accepted == 1:
		text = "1 engine accepts it"
	case r.Accepted > 1:
		text = fmt.Sprintf("%d engines accept it", r.Accepted)
	case len(r.Silent) == 0:
		text = "no engine follows the configuration, so that none has checked it"
	default:
		text = "no engine has checked it"
	}
	if len(r.Silent) > 0 {
		text += fmt.Sprintf("; %s not answered: %s", pluralHave(len(r.Silent)), namesOf(r.Silent))
	}
	return text + "; nothing is pushed"
}

func pluralHave(engines int) string {
	if engines == 1 {
		return "1 engine has"
	}
	return fmt.Sprintf("%d engines have", engines)
}

func forceHint(isGuarded bool) string {
	if isGuarded {
		return "; if that is meant, push with --force"
	}
	return ""
}

// confirm asks whether a revision is to be pushed. It does not wait for the answer after the context of the command is
// done: a read from a terminal cannot be interrupted, so it goes on until the program ends.
func confirm(c *cobra.Command, number int64) error {
	fmt.Fprintf(c.OutOrStdout(), "Push this as revision %d? [y/N] ", number)
	read := make(chan error, 1)
	go func() { read <- readConsent(c.InOrStdin()) }()
	err := errors.New("nothing is pushed: interrupted")
	select {
	case err = <-read:
	case <-c.Context().Done():
	}
	fmt.Fprintln(c.OutOrStdout())
	return err
}

// readConsent reads the answer to a question, and returns an error unless it is yes.
func readConsent(from io.Reader) error {
	answer, err := bufio.NewReader(from).ReadString('\n')
	switch strings.ToLower(strings.TrimSpace(answer)) {
	case "y", "yes":
		return nil
	case "":
		if err != nil {
			return errors.New("nothing is pushed: no answer was given, use --yes in scripts")
		}
	}
	return errors.New("nothing is pushed")
}

// maxShown bounds the engines whose errors are shown.
const maxShown = 5

// showRefusals writes why engines have refused a revision, and returns the error.
func showRefusals(w io.Writer, r *revision.RefusedError) error {
	for i, e := range r.Refused {
		if i == maxShown {
			fmt.Fprintf(w, "… and %d more engines\n", len(r.Refused)-i)
			break
		}
		writeRefusal(w, e.Name, e.Answer.Error)
	}
	const nothing = "nothing is changed: "
	switch {
	case r.Engines == 0:
		return fmt.Errorf("%s%w; start one, or push with --ignore-silent", nothing, r)
	case len(r.Refused) == 0:
		return fmt.Errorf("%s%d of %d engines have not answered: %s; push again with a longer --timeout, or with --ignore-silent", nothing, len(r.Silent), r.Engines, namesOf(r.Silent))
	}
	return fmt.Errorf("%s%d of %d engines have refused it", nothing, len(r.Refused), r.Engines)
}

func writeRefusal(w io.Writer, engine, text string) {
	fmt.Fprintf(w, "%s refuses it:\n", probe.OneLine(engine, probe.MaxGroupName))
	for line := range strings.Lines(probe.CleanText(text, revision.MaxError)) {
		fmt.Fprintf(w, "  %s\n", strings.TrimSuffix(line, "\n"))
	}
}

// namesOf returns the first of the names of engines, which all who can write to the store can choose.
func namesOf(engines []string) string {
	return probe.OneLine(cli.SomeNames(engines), 4*probe.MaxGroupName)
}

// usePeriod is how often it is looked at which revisions the engines use.
const usePeriod = 200 * time.Millisecond

// awaitUse waits until all engines use a revision or have refused it, and writes which.
func (f *fleet) awaitUse(ctx context.Context, out, errs io.Writer, r revision.Revision, by *flags) error {
	ctx, cancel := context.WithTimeout(ctx, by.timeout)
	defer cancel()
	var last uses // as far as it is known
	for {
		engines, err := revision.Engines(ctx, f.Store)
		if err == nil {
			if last = usesOf(engines, r.Ref()); len(last.waiting) == 0 {
				return last.write(out, errs, r, by.ignoreSilent)
			}
		}
		select {
		case <-time.After(usePeriod):
			continue
		case <-ctx.Done():
		}
		if len(last.waiting) == 0 {
			return fmt.Errorf("revision %d is current; it is not known which engines use it: %w; sonde-fleet cluster members shows them", r.Number, err)
		}
		return fmt.Errorf("revision %d is current; it is not known yet whether these engines use it: %s; sonde-fleet cluster members shows it", r.Number, namesOf(last.waiting))
	}
}

// uses are the engines by what they do with a revision.
type uses struct {
	using   int
	refused []revision.Engine
	waiting []string
}

func usesOf(engines []revision.Engine, r revision.Ref) (u uses) {
	for _, e := range engines {
		switch {
		case e.Running == r:
			u.using++
		case e.Refused != nil && e.Refused.Ref == r:
			u.refused = append(u.refused, e)
		default:
			u.waiting = append(u.waiting, e.Name)
		}
	}
	return u
}

// write writes which engines use a revision. It is an error if not all of them do, or if none does, unless the revision
// is the first, or mayBeUnused.
func (u uses) write(out, errs io.Writer, r revision.Revision, mayBeUnused bool) error {
	for _, e := range u.refused[:min(len(u.refused), maxShown)] {
		writeRefusal(errs, e.Name, e.Refused.Error)
	}
	if len(u.refused) > 0 {
		return fmt.Errorf("revision %d is current; %d of %s use it", r.Number, u.using, cli.Plural(u.using+len(u.refused), "engine"))
	}
	if u.using == 0 && r.Number > 1 && !mayBeUnused {
		return fmt.Errorf("revision %d is current; no engine uses it: all have ended, or left the cluster", r.Number)
	}
	if u.using == 0 {
		_, err := fmt.Fprintf(out, "revision %d is current; no engine follows the configuration yet\n", r.Number)
		return err
	}
	_, err := fmt.Fprintf(out, "revision %d is current, in use by %s\n", r.Number, cli.Plural(u.using, "engine"))
	return err
}
