package status

import (
	"context"
	"errors"
	"fmt"
	"io"
	"net"
	"os"
	"os/exec"
	"os/signal"
	"strconv"
	"syscall"
	"time"

	"github.com/spf13/cobra"

	"github.com/sonde-probe/sonde/api"
	beatprobe "github.com/sonde-probe/sonde/builtin/beat"
	"github.com/sonde-probe/sonde/cmd/engine/internal/cli"
)

// beatTokenVariable is the environment variable for the token of a target.
const beatTokenVariable = "SONDE_BEAT_TOKEN"

// beat holds the flags and arguments of sonde beat.
type beat struct {
	connection
	udp    string
	status string
	target string
	token  string
	client *api.Client // nil with udp
}

// beatCommand returns the command sonde beat.
func beatCommand() *cobra.Command {
	var b beat
	c := &cobra.Command{
		Use:   "beat TARGET [-- COMMAND [ARGUMENT...]]",
		Short: "Send a beat of a target to a running engine, or run a command and report how it ended",
		Long: "Beat says that a target works, for its probes with a beat block: by HTTP, or with --udp by one signed\n" +
			"datagram, which is not answered. The token of the beat block is in the file of --token-file, or in the\n" +
			"environment variable " + beatTokenVariable + ".\n\n" +
			"With a COMMAND, as in a line of a crontab, it says that a run begins, runs the command, and reports its\n" +
			"exit status: 0 is a beat, and any other a failure. The exit code is that of the command, also if the\n" +
			"engine cannot be reached, which is written to standard error.",
		Example: "  sonde beat worker --token-file /etc/sonde/worker.token\n  sonde beat backup --token-file /etc/sonde/backup.token -- /usr/local/bin/backup --full\n  SONDE_BEAT_TOKEN=… sonde beat worker --udp 127.0.0.1:9651 --status fail",
		RunE:    func(c *cobra.Command, args []string) error { return b.run(c, args) },
	}
	b.register(c)
	c.Flags().StringVar(&b.udp, "udp", "", "send a datagram to this `host:port`, that of beats in the engine block")
	c.Flags().StringVar(&b.status, "status", "ok", "`status` to report without a command: ok, fail, start or an exit status")
	return c
}

func (b *beat) run(c *cobra.Command, args []string) error {
	dash := c.ArgsLenAtDash()
	switch {
	case len(args) == 0 || dash == 0:
		return cli.UsageError("TARGET is required")
	case dash < 0 && len(args) > 1 || dash > 1:
		return cli.UsageError("only one TARGET is allowed, and a command after --")
	case dash == 1 && len(args) == 1:
		return cli.UsageError("a command is required after --")
	case dash == 1 && c.Flags().Changed("status"):
		return cli.UsageError("--status is that of the command")
	}
	b.target = args[0]
	report, err := beatprobe.ParseReport(b.status)
	if err != nil {
		return cli.UsageError("--%w", err)
	}
	if err := b.prepare(); err != nil {
		return err
	}
	if dash < 0 {
		return b.advise(b.send(c.Context(), c.Context(), report))
	}
	return b.runCommand(c, args[1:])
}

// prepare reads the token.
func (b *beat) prepare() (err error) {
	if b.tokenFile == "" {
		b.token = os.Getenv(beatTokenVariable)
	} else if b.token, err = cli.ReadToken(b.tokenFile); err != nil {
		return err
	}
	if b.token == "" {
		return cli.UsageError("the token of the target is required: give --token-file, or set %s", beatTokenVariable)
	}
	if b.udp != "" {
		return nil
	}
	if b.client, err = b.connection.client(); err == nil {
		b.client.Token = b.token
	}
	return err
}

const (
	beatTries   = 3
	beatTimeout = 3 * time.Second // per attempt: a working engine responds immediately
	beatPause   = time.Second     // between two attempts
)

// send sends a beat, and retries until trying is done. A datagram is sent only once, since its receipt is not acknowledged.
func (b *beat) send(ctx, trying context.Context, report beatprobe.Report) (err error) {
	if b.udp != "" {
		conn, err := new(net.Dialer).DialContext(ctx, "udp", b.udp)
		if err != nil {
			return err
		}
		defer conn.Close()
		_, err = conn.Write(beatprobe.AppendDatagram(nil, b.target, b.token, time.Now(), report))
		return err
	}
	for try := 1; ; try++ {
		if err = b.request(ctx, report); err == nil || isFinal(err) || try == beatTries {
			return err
		}
		select {
		case <-time.After(beatPause):
		case <-trying.Done():
			return err
		}
	}
}

// advise adds a remedy to the error of a request.
func (b *beat) advise(err error) error {
	if err == nil || b.client == nil {
		return err
	}
	return advise(b.client, err)
}

func (b *beat) request(ctx context.Context, report beatprobe.Report) error {
	ctx, cancel := context.WithTimeout(ctx, beatTimeout)
	defer cancel()
	status := report.Status.String()
	if report.Exit != 0 {
		status = strconv.Itoa(int(report.Exit))
	}
	_, err := b.client.Beat(ctx, b.target, status, report.Detail)
	return err
}

// isFinal reports whether the engine rejected a beat in a way that a retry cannot change.
func isFinal(err error) bool {
	var refused *api.Error
	return errors.As(err, &refused) && refused.Status < 500 && refused.Status != 429
}

// runCommand runs a command between two beats. The first beat does not delay the command, and is not retried after the command
// has exited.
func (b *beat) runCommand(c *cobra.Command, command []string) error {
	signals := make(chan os.Signal, 8)
	signal.Notify(signals, os.Interrupt, syscall.SIGTERM, syscall.SIGHUP)
	defer signal.Stop(signals)
	started := make(chan error, 1)
	running, end := context.WithCancel(c.Context())
	go func() { started <- b.send(c.Context(), running, beatprobe.Report{Status: beatprobe.Started}) }()
	code, detail := execute(command, c.InOrStdin(), c.OutOrStdout(), c.ErrOrStderr(), signals)
	end()
	report := beatprobe.Report{Status: beatprobe.OK}
	if code != 0 {
		report = beatprobe.Report{Status: beatprobe.Failed, Exit: uint8(code), Detail: detail}
	}
	for _, err := range []error{<-started, b.send(c.Context(), c.Context(), report)} {
		if err != nil {
			fmt.Fprintf(c.ErrOrStderr(), "sonde: beat of %s not sent: %v\n", b.target, b.advise(err))
		}
	}
	if code != 0 {
		return &cli.ExitError{Code: code}
	}
	return nil
}

// Exit codes of a shell for commands that could not be started or were killed.
const (
	exitNotFound = 127
	exitSignal   = 128 // plus the number of the signal
)

// execute runs a command and forwards this program's signals to it. It returns the exit code as a shell would, and the reason
// if the command failed without an exit code of its own.
func execute(command []string, stdin io.Reader, stdout, stderr io.Writer, signals <-chan os.Signal) (code int, why string) {
	process := exec.Command(command[0], command[1:]...)
	process.Stdin, process.Stdout, process.Stderr = stdin, stdout, stderr
	if err := process.Start(); err != nil {
		fmt.Fprintf(stderr, "sonde: %v\n", err)
		return exitNotFound, err.Error()
	}
	ended := make(chan error, 1)
	go func() { ended <- process.Wait() }()
	for {
		select {
		case s := <-signals:
			_ = process.Process.Signal(s) // an error means that the command has exited
			continue
		case err := <-ended:
			if status, ok := process.ProcessState.Sys().(syscall.WaitStatus); ok && status.Signaled() {
				return exitSignal + int(status.Signal()), "killed by the signal " + status.Signal().String()
			}
			if code = process.ProcessState.ExitCode(); code == 0 && err != nil { // the command's output could not be copied
				return 1, err.Error()
			}
			return code, ""
		}
	}
}
