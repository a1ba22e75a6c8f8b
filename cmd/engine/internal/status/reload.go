package status

import (
	"context"
	"errors"
	"fmt"
	"io"
	"net"
	"net/http"
	"net/url"
	"os"
	"os/signal"
	"strings"
	"syscall"

	"github.com/spf13/cobra"

	"github.com/sonde-probe/sonde/api"
	"github.com/sonde-probe/sonde/cmd/engine/internal/cli"
	"github.com/sonde-probe/sonde/cmd/engine/internal/control"
)

// Reload returns sonde reload.
func Reload() *cobra.Command {
	var f flags
	force, output := false, ""
	c := &cobra.Command{
		Use:   "reload",
		Short: "Make a running engine read its configuration again",
		Long: "Reload makes an engine read its configuration again, as SIGHUP does, and waits until that has ended.\n" +
			"It exits with 0 if the engine has put the configuration into use, also if nothing has changed. It\n" +
			"exits with 1 if the engine has rejected it, for errors or by reload_guard, and goes on with the one\n" +
			"before. --force does not ask reload_guard.\n\n" +
			controlHelp,
		Example: "  sonde reload\n  sonde reload --force --address 127.0.0.1:9000",
		Args:    cli.Args(0, 0, "reload takes no arguments: the engine reads the files that it was started with"),
		RunE: func(c *cobra.Command, _ []string) error {
			if output != "text" && output != "json" {
				return cli.UsageError("unknown output %q: use text or json", output)
			}
			r, err := withController(c, f, func(ctx context.Context, client *api.Client) (api.Reload, error) {
				return client.Reload(ctx, force)
			})
			if err != nil {
				return err
			}
			return showReload(c, r, output == "json")
		},
	}
	f.connection(c)
	c.Flags().BoolVar(&force, "force", false, "do not ask reload_guard how many targets may be removed or restarted")
	c.Flags().StringVarP(&output, "output", "o", "text", "`format`: text or json")
	return c
}

// controlHelp says which engine a command reaches, and who may use it.
const controlHelp = "The engine must be one of this user on this machine, which is reached by its control socket: the\n" +
	"only one, or the one that listens on --address. Others need --address and --token-file: their token."

// withController returns what request does, which may change an engine: it has a client from f.controller, and
// a context that ends with an interrupt. An error of request has its cure.
func withController[T any](c *cobra.Command, f flags, request func(context.Context, *api.Client) (T, error)) (answer T, err error) {
	ctx, stop := signal.NotifyContext(c.Context(), os.Interrupt, syscall.SIGTERM)
	defer stop()
	client, err := f.controller(c)
	if err != nil {
		return answer, err
	}
	if answer, err = request(ctx, client); err != nil {
		return answer, f.adviseControl(ctx, client, err)
	}
	return answer, nil
}

// controller returns a client that may change an engine: over its control socket, unless a token is
// to be shown.
func (f flags) controller(c *cobra.Command) (*api.Client, error) {
	if f.tokenFile != "" {
		return f.client()
	}
	address := ""
	if c.Flags().Changed("address") {
		u, err := url.Parse(f.url())
		if err != nil {
			return nil, cli.UsageError("--address: %v", err)
		}
		address = u.Host
	}
	path, err := control.Find(address)
	if err != nil {
		return nil, err
	}
	if path == "" {
		return f.client()
	}
	return &api.Client{Base: "http://localhost", HTTP: &http.Client{Transport: &http.Transport{DialContext: control.Dial(path)}}}, nil
}

// adviseControl adds the cure to an error of a request that needs a controller.
func (f flags) adviseControl(ctx context.Context, client *api.Client, err error) error {
	refused, answered := errors.AsType[*api.Error](err)
	switch {
	case ctx.Err() != nil:
		return errors.New("interrupted; the engine goes on with it")
	case answered && refused.Status == http.StatusForbidden:
		return fmt.Errorf("%w; run this as the user of the engine or as root, or set token_file in its engine block, and give --token-file", err)
	case answered, errors.Is(err, syscall.ECONNREFUSED):
		return viewer{client: client}.advise(err)
	}
	var network net.Error
	if errors.As(err, &network) || errors.Is(err, io.EOF) {
		return fmt.Errorf("the engine has not answered: %w; its log says whether it has reloaded", err)
	}
	return err
}

// showReload writes how a reload has ended. If it was rejected it returns the error.
func showReload(c *cobra.Command, r api.Reload, asJSON bool) error {
	if asJSON {
		if err := cli.WriteJSON(c.OutOrStdout(), r); err != nil || r.Error == nil {
			return err
		}
		return cli.ErrReported(cli.ExitFailed)
	}
	if r.Problems != "" {
		fmt.Fprintln(c.ErrOrStderr(), strings.TrimRight(r.Problems, "\n")+"\n")
	}
	if r.Error != nil {
		cure := ""
		if r.Guarded {
			cure = "; if this is meant: sonde reload --force"
		}
		return fmt.Errorf("configuration rejected, the engine goes on with the one before: %s%s", r.Error.Message, cure)
	}
	text := fmt.Sprintf("configuration applied: %s; probes: %s\n", cli.Plural(r.Targets, "target"), counts(r.Probes))
	if r.Instances != nil {
		text += instancesText(*r.Instances)
	}
	text += blocksText(r.Blocks)
	for _, name := range r.Settings {
		text += fmt.Sprintf("~ engine: %s takes effect when the engine is started again\n", name)
	}
	_, err := io.WriteString(c.OutOrStdout(), text)
	return err
}

// counts returns what has become of probes.
func counts(c *api.Changes) string {
	if c == nil {
		return "none"
	}
	return fmt.Sprintf("%d added, %d updated, %d replaced, %d removed, %d kept", c.Added, c.Updated, c.Replaced, c.Removed, c.Kept)
}
