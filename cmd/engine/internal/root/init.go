package root

import (
	"bufio"
	"cmp"
	"errors"
	"fmt"
	"net/netip"
	"net/url"
	"os"
	"strconv"
	"strings"

	"github.com/spf13/cobra"

	"github.com/sonde-probe/sonde/cmd/engine/internal/cli"
	"github.com/sonde-probe/sonde/cmd/engine/internal/handlers"
	"github.com/sonde-probe/sonde/config"
	"github.com/sonde-probe/sonde/config/document"
)

// initCommand returns the command sonde init.
func initCommand() *cobra.Command {
	var first firstConfig
	c := &cobra.Command{
		Use:   "init [CONFIG]",
		Short: "Write a first configuration",
		Long: "Init writes a configuration with one target to a new file; default " + handlers.DefaultConfig + ". It asks three questions: what\n" +
			"to probe, what to call it, and which command starts it. With --probe it asks none. It never overwrites a\n" +
			"file, and checks the configuration first, as sonde validate does.",
		Example: "  sonde init\n  sonde init --probe http://127.0.0.1:8080/healthz\n  sonde init db.hcl --probe tcp://10.0.0.7:5432 --name db",
		Args:    cli.Args(0, 1, "at most one CONFIG is allowed"),
		RunE: func(c *cobra.Command, args []string) error {
			return first.run(c, handlers.OrDefault(args)[0])
		},
	}
	c.Flags().StringVar(&first.url, "probe", "", "probe this `URL`: http, https or tcp://HOST:PORT")
	c.Flags().StringVar(&first.name, "name", "", "`name` of the target; default: of the host, or web or service")
	return c
}

// firstConfig holds the flags and answers of sonde init.
type firstConfig struct {
	url     string
	name    string
	command string // starts the target; empty if it is started elsewhere
}

func (f firstConfig) run(c *cobra.Command, path string) error {
	if path == cli.Stdin {
		return cli.UsageError("standard input cannot be written: name a file")
	}
	if _, err := os.Lstat(path); err == nil {
		return fmt.Errorf("%s exists: name another file, or remove it", path)
	}
	if f.url == "" {
		if err := f.ask(c); err != nil {
			return err
		}
	}
	at, err := parseProbed(f.url)
	if err != nil {
		return err
	}
	f.name = cmp.Or(f.name, at.name())
	text := f.text(at)
	p := handlers.NewPlugins(c.Context(), handlers.WaitForChecks, handlers.Silent)
	defer p.Close()
	_, diags := (&handlers.Inputs{}).Parse([]config.Source{{Name: path, Bytes: text}}, nil, p)
	if err := cli.ShowDiagnostics(c, diags, cli.ExitFailed); err != nil {
		return err
	}
	if err := create(path, text); err != nil {
		return err
	}
	_, err = fmt.Fprintf(c.OutOrStdout(), "%[1]s: written\nnext: sonde probe %[1]s %[2]s\n      sonde run %[1]s\n", path, f.name)
	return err
}

// create creates a file that must not exist yet.
func create(path string, text []byte) error {
	file, err := os.OpenFile(path, os.O_WRONLY|os.O_CREATE|os.O_EXCL, 0o644)
	if err != nil {
		return err
	}
	_, err = file.Write(text)
	return errors.Join(err, file.Close())
}

// ask asks the questions. An empty answer is the default.
func (f *firstConfig) ask(c *cobra.Command) error {
	in := bufio.NewScanner(c.InOrStdin()) // it limits the length of a line
	question := func(text string) (string, bool) {
		fmt.Fprint(c.ErrOrStderr(), text+" ")
		isAnswered := in.Scan()
		return strings.TrimSpace(in.Text()), isAnswered
	}
	var isAnswered bool
	if f.url, isAnswered = question("What is to be probed? A URL such as http://127.0.0.1:8080/healthz or tcp://127.0.0.1:5432:"); f.url == "" {
		if !isAnswered {
			fmt.Fprintln(c.ErrOrStderr())
		}
		return cli.UsageError("there is no URL to probe: answer, or give --probe URL")
	}
	at, err := parseProbed(f.url)
	if err != nil {
		return err
	}
	if f.name == "" {
		f.name, _ = question(fmt.Sprintf("What is its name? [%s]:", at.name()))
	}
	f.command, isAnswered = question("Which command starts it and stays in the foreground? [none, it is started elsewhere]:")
	if !isAnswered {
		fmt.Fprintln(c.ErrOrStderr())
	}
	return in.Err()
}

// probed is the endpoint in a URL.
type probed struct {
	scheme, host string
	port         int
	path         string // with its query
}

// parseProbed parses a URL that a probe can use.
func parseProbed(text string) (p probed, err error) {
	u, err := url.Parse(text)
	switch {
	case err != nil:
		return p, cli.UsageError("%.200q is not a URL: write http://HOST:PORT/PATH or tcp://HOST:PORT", text)
	case u.Scheme != "http" && u.Scheme != "https" && u.Scheme != "tcp":
		return p, cli.UsageError("%.200q is not a URL of http, https or tcp: write http://HOST:PORT/PATH or tcp://HOST:PORT", text)
	case u.Hostname() == "":
		return p, cli.UsageError("%.200q has no host: write http://HOST:PORT/PATH or tcp://HOST:PORT", text)
	case u.User != nil:
		return p, errors.New("a password does not belong in a command: write basic_auth into the http block, see sonde docs http")
	}
	p = probed{scheme: u.Scheme, host: u.Hostname(), port: map[string]int{"http": 80, "https": 443}[u.Scheme], path: u.RequestURI()}
	if u.Port() != "" {
		p.port, err = strconv.Atoi(u.Port())
	}
	if err != nil || p.port == 0 {
		return p, cli.UsageError("%.200q has no port: write tcp://HOST:PORT", text)
	}
	return p, nil
}

// name returns a name for the target: the host without its domain.
func (p probed) name() string {
	if _, err := netip.ParseAddr(p.host); err != nil && p.host != "localhost" {
		name, _, _ := strings.Cut(p.host, ".")
		return name
	}
	if p.scheme == "tcp" {
		return "service"
	}
	return "web"
}

// text formats the configuration.
func (f firstConfig) text(at probed) []byte {
	d := document.New()
	target := d.Block("target", f.name)
	target.Set("address", at.host)
	target.Set("ports", map[string]any{at.scheme: at.port})
	if f.command != "" {
		target.Newline()
		target.BlockOf("process", document.Argument{Name: "command", Value: arguments(f.command)})
	}
	target.Newline()
	target.Comment("A target whose readiness probe fails gets no traffic.")
	at.write(target.Block("probe", "readiness"))
	if f.command != "" {
		target.Newline()
		target.Comment("A target whose liveness probe fails is restarted.")
		at.write(target.Block("probe", "liveness"))
	}
	return d.Bytes()
}

// write writes the handler block of a probe.
func (p probed) write(to *document.Body) {
	if p.scheme == "tcp" {
		to.BlockOf("tcp", document.Argument{Name: "port", Value: p.scheme})
		return
	}
	scheme := ""
	if p.scheme == "https" {
		scheme = p.scheme
	}
	to.BlockOf("http", document.Argument{Name: "scheme", Value: scheme}, document.Argument{Name: "path", Value: p.path}, document.Argument{Name: "port", Value: p.scheme})
}

// arguments splits a command into words, or wraps it in a shell command if it contains shell syntax.
func arguments(command string) []string {
	if strings.ContainsAny(command, "\"'`\\$&|;<>(){}[]*?~#=\n") {
		return []string{"sh", "-c", command}
	}
	return strings.Fields(command)
}
