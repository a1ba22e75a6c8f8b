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
	"time"

	"github.com/spf13/cobra"
	"github.com/spf13/pflag"

	"github.com/sonde-probe/sonde/api"
	"github.com/sonde-probe/sonde/cmd/engine/internal/cli"
	"github.com/sonde-probe/sonde/cmd/engine/internal/control"
	"github.com/sonde-probe/sonde/internal/dial"
)

// connection holds the flags for connecting to an engine.
type connection struct {
	address   string
	tokenFile string
	tls       dial.TLS

	set *pflag.FlagSet // the set that contains the flags
}

// register adds the flags to a command.
func (f *connection) register(c *cobra.Command) {
	f.set = c.Flags()
	f.set.StringVar(&f.address, "address", "http://"+api.DefaultListen, "`URL` or host:port of the engine; if none listens on the default, the only one of this user that runs")
	f.set.StringVar(&f.tokenFile, "token-file", "", "send the token in a `file`")
	f.set.StringVar(&f.tls.CAFile, "ca-file", "", "trust the certificate authorities in a PEM `file` instead of the system's")
	f.set.StringVar(&f.tls.CertFile, "cert-file", "", "authenticate with a client certificate, a PEM `file`")
	f.set.StringVar(&f.tls.KeyFile, "key-file", "", "key of the client certificate, a PEM `file`")
}

// requestTimeout limits the time for one of the engine's responses.
const requestTimeout = 30 * time.Second

// ask returns the result of a request to a running engine. Errors that a flag can fix include a remedy.
func ask[T any](ctx context.Context, f connection, request func(context.Context, *api.Client) (T, error)) (answer T, err error) {
	client, err := f.client()
	if err != nil {
		return answer, err
	}
	ctx, cancel := context.WithTimeout(ctx, requestTimeout)
	defer cancel()
	if answer, err = request(ctx, client); err != nil {
		return answer, advise(client, err)
	}
	return answer, nil
}

// ofTarget completes a command that shows the result of a request about one target, as JSON or as text.
func ofTarget[T any](c *cobra.Command, request func(*api.Client, context.Context, string) (T, error), text func(context.Context, cli.Screen, *api.Client, T) string) *cobra.Command {
	var f connection
	output := ""
	c.Args = cli.Args(1, 1, "one TARGET is required")
	c.RunE = func(c *cobra.Command, args []string) error {
		_, err := ask(c.Context(), f, func(ctx context.Context, client *api.Client) (n int, err error) {
			answer, err := request(client, ctx, args[0])
			switch {
			case err != nil:
				return 0, err
			case output == "json":
				return 0, cli.WriteJSON(c.OutOrStdout(), answer)
			}
			return io.WriteString(c.OutOrStdout(), text(ctx, cli.ScreenOf(c.OutOrStdout()), client, answer))
		})
		return err
	}
	f.register(c)
	cli.OutputVar(c.Flags(), &output)
	return c
}

// controlHelp is the help text about which engine a command reaches, and who may use the command.
const controlHelp = "The engine must be one of this user on this machine, which is reached by its control socket: the\n" +
	"only one, or the one that listens on --address. Others need --address and --token-file: their token."

// withController returns the result of a request that may change an engine. The request gets a client from f.controller, and a
// context that an interrupt cancels. Errors of request include a remedy.
func withController[T any](c *cobra.Command, f connection, request func(context.Context, *api.Client) (T, error)) (answer T, err error) {
	ctx, stop := signal.NotifyContext(c.Context(), os.Interrupt, syscall.SIGTERM)
	defer stop()
	client, err := f.controller()
	if err != nil {
		return answer, err
	}
	spoken := ""
	client.Engine = func(engine string) {
		if engine != spoken { // an engine that was restarted meanwhile is printed again
			spoken = engine
			fmt.Fprintf(c.ErrOrStderr(), "engine: %s\n", engine)
		}
	}
	if answer, err = request(ctx, client); err != nil {
		return answer, adviseControl(ctx, client, err)
	}
	return answer, nil
}

// controller returns a client that may change an engine. The client uses the engine's control socket unless a token file is
// set.
func (f connection) controller() (*api.Client, error) {
	if f.tokenFile != "" {
		return f.client()
	}
	address := ""
	if f.set.Changed("address") {
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
	return clientBy("http://localhost", "", &http.Transport{DialContext: control.Dial(path)}), nil
}

// client returns a client for reading from an engine.
func (f connection) client() (*api.Client, error) {
	token, err := cli.ReadToken(f.tokenFile)
	if err != nil {
		return nil, err
	}
	if !f.set.Changed("address") && f.tls == (dial.TLS{}) {
		return clientBy(f.url(), token, &http.Transport{DialContext: dialOnly(control.Find)}), nil
	}
	if (f.tls.CertFile == "") != (f.tls.KeyFile == "") {
		return nil, cli.UsageError("--cert-file and --key-file must be given together")
	}
	trust, err := f.tls.Load()
	if err != nil {
		flags := strings.NewReplacer("tls.ca_file", "--ca-file", "tls.cert_file", "--cert-file", "tls.key_file", "--key-file")
		return nil, errors.New(flags.Replace(err.Error()))
	}
	return clientBy(f.url(), token, &http.Transport{TLSClientConfig: trust}), nil
}

func clientBy(base, token string, by *http.Transport) *api.Client {
	return &api.Client{Base: base, Token: token, HTTP: &http.Client{Transport: by}}
}

// url returns the URL of the engine. An address host:port, as written by sonde run --address-file, uses TLS if TLS flags are
// set.
func (f connection) url() string {
	switch {
	case strings.Contains(f.address, "://"):
		return f.address
	case f.tls != dial.TLS{}:
		return "https://" + f.address
	}
	return "http://" + f.address
}

// dialOnly connects to the default address. If nothing listens there, it connects to the control socket of the only engine that
// find returns, the one that sonde reload uses.
func dialOnly(find func(address string) (path string, err error)) func(ctx context.Context, network, address string) (net.Conn, error) {
	return func(ctx context.Context, network, address string) (net.Conn, error) {
		conn, err := new(net.Dialer).DialContext(ctx, network, address)
		if !errors.Is(err, syscall.ECONNREFUSED) {
			return conn, err
		}
		switch path, several := find(""); {
		case several != nil:
			return nil, several
		case path != "":
			return control.Dial(path)(ctx, network, address)
		}
		return nil, err
	}
}

// advise adds a remedy to an error that a flag can fix.
func advise(client *api.Client, err error) error {
	refused, answered := errors.AsType[*api.Error](err)
	switch {
	case answered && refused.Status == http.StatusUnauthorized:
		return fmt.Errorf("%w; give the file of the token with --token-file", err)
	case answered && refused.Status == http.StatusNotFound:
		return fmt.Errorf("%w at %s; --address chooses another engine", err, client.Base)
	case errors.Is(err, syscall.ECONNREFUSED):
		return fmt.Errorf("no engine listens on %s: %w; give the URL of the engine with --address", client.Base, syscall.ECONNREFUSED)
	}
	return err
}

// adviseControl adds a remedy to the error of a request that needs a controller.
func adviseControl(ctx context.Context, client *api.Client, err error) error {
	refused, answered := errors.AsType[*api.Error](err)
	switch {
	case ctx.Err() != nil:
		return errors.New("interrupted; the engine continues with the request")
	case answered && refused.Status == http.StatusForbidden && strings.Contains(refused.Message, "no control socket"):
		return fmt.Errorf("%w; fix that and restart the engine, or set token_file in its engine block and use --token-file; SIGHUP also reloads the engine", err)
	case answered && refused.Status == http.StatusForbidden:
		return fmt.Errorf("%w; run this as the user of the engine or as root, or set token_file in its engine block, and give --token-file", err)
	case answered, errors.Is(err, syscall.ECONNREFUSED):
		return advise(client, err)
	}
	var network net.Error
	if errors.As(err, &network) || errors.Is(err, io.EOF) {
		return fmt.Errorf("the engine has not responded: %w; its log shows whether it has reloaded", err)
	}
	return err
}
