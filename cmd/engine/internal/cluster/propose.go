package cluster

import (
	"bufio"
	"errors"
	"fmt"
	"io"
	"strings"

	"github.com/spf13/cobra"

	"github.com/sonde-probe/sonde/cmd/engine/internal/cli"
	"github.com/sonde-probe/sonde/cmd/engine/internal/daemon"
	"github.com/sonde-probe/sonde/cmd/engine/internal/status"
	"github.com/sonde-probe/sonde/config"
	"github.com/sonde-probe/sonde/fleet/revision"
)

// proposal is a revision to push.
type proposal struct {
	before, after *config.Config // nil if it cannot be read here
	seen          revision.Overview
	files         *revision.Bundle
	restores      int64 // see revision.Revision.Restores
}

// propose shows the changes of a revision, asks for confirmation, pushes it, and waits until the engines use it.
func (f *pushFlags) propose(c *cobra.Command, to *store, p proposal) error {
	if err := f.showPlan(c.OutOrStdout(), p); err != nil {
		return err
	}
	if f.dryRun {
		_, err := fmt.Fprintln(c.OutOrStdout(), "nothing is pushed")
		return err
	}
	if !f.yes {
		if err := confirm(c, f.question(p.seen)); err != nil {
			return err
		}
	}
	progress := cli.StartProgress(c.ErrOrStderr(), "pushing the configuration")
	defer progress.Stop()
	r, err := revision.Push(c.Context(), to.Store, p.seen, revision.Revision{
		Author: author(), Message: f.message, Restores: p.restores, Force: f.force, Engine: f.to,
	}, p.files)
	if err != nil {
		return to.advise(err)
	}
	return to.await(c.Context(), c.OutOrStdout(), c.ErrOrStderr(), progress, r, f.timeout)
}

// showPlan writes the changes of a revision. It returns an error if engines would refuse them.
func (f *pushFlags) showPlan(w io.Writer, p proposal) error {
	if p.before == nil || p.after == nil {
		return nil
	}
	plan, err := daemon.PlanChange(p.before, p.after)
	if err != nil {
		return err
	}
	if _, err := io.WriteString(w, status.PlanText(cli.ScreenOf(w), plan)); err != nil {
		return err
	}
	switch {
	case plan.Error == nil || plan.Guarded && f.force:
		return nil
	case plan.Guarded:
		return fmt.Errorf("engines would refuse it: %s; if this is intended, push with --force", plan.Error.Message)
	}
	return fmt.Errorf("engines would refuse it: %s", plan.Error.Message)
}

// question returns the confirmation question before a push.
func (f *pushFlags) question(seen revision.Overview) string {
	latest := seen.Latest()
	next := latest.Number + 1
	text := fmt.Sprintf("Push this as revision %d", next)
	if f.to != "" {
		text = fmt.Sprintf("Try this at %s as revision %d", shown(f.to), next)
	}
	if latest.Engine != "" {
		text += fmt.Sprintf(", and end the trial at %s", shown(latest.Engine))
	}
	return text + "?"
}

// confirm asks a question. It returns when the context of the command is done. The read from a terminal cannot be interrupted,
// so its goroutine runs until the program exits.
func confirm(c *cobra.Command, question string) error {
	fmt.Fprintf(c.OutOrStdout(), "%s [y/N] ", question)
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

// readConsent reads the answer to a question, and returns an error unless the answer is yes.
func readConsent(from io.Reader) error {
	answer, err := bufio.NewReader(from).ReadString('\n')
	answer = strings.ToLower(strings.TrimSpace(answer))
	switch {
	case answer == "y" || answer == "yes":
		return nil
	case answer == "" && err != nil:
		return errors.New("nothing is pushed: no answer was given, use --yes in scripts")
	}
	return errors.New("nothing is pushed")
}
