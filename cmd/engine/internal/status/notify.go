package status

import (
	"context"
	"errors"
	"fmt"

	"github.com/spf13/cobra"

	"github.com/sonde-probe/sonde/api"
	"github.com/sonde-probe/sonde/cmd/engine/internal/cli"
	"github.com/sonde-probe/sonde/probe"
)

// testNotifyCommand returns the command sonde test-notify.
func testNotifyCommand() *cobra.Command {
	var f connection
	c := &cobra.Command{
		Use:   "test-notify NAME",
		Short: "Send a test notice to the receivers of a notify block",
		Long: "Test-notify makes a running engine send a notice to each receiver of a notify block that says that it is a\n" +
			"test, and waits for their answers. It says which receivers have accepted it, and the errors of the others.\n" +
			"It changes nothing about other notices.\n\n" + controlHelp,
		Example: "  sonde test-notify oncall",
		Args:    cli.Args(1, 1, "the NAME of a notify block is required"),
	}
	c.RunE = func(c *cobra.Command, args []string) error {
		test, err := withController(c, f, func(ctx context.Context, client *api.Client) (api.NotifierTest, error) {
			return client.TestNotifier(ctx, args[0])
		})
		if err != nil {
			return err
		}
		failed := false
		for _, r := range test.Receivers {
			text := "accepted"
			if r.Error != "" {
				text, failed = "not accepted: "+probe.OneLine(r.Error, probe.MaxDetail), true
			}
			fmt.Fprintf(c.OutOrStdout(), "%s: %s\n", probe.OneLine(r.Receiver, probe.MaxDetail), text)
		}
		if failed {
			return errors.New("not all receivers have accepted the test notice")
		}
		return nil
	}
	f.register(c)
	return c
}
