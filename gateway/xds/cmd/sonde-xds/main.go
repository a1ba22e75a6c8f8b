// Command sonde-xds follows groups of a Sonde over its API, and serves them to Envoy and to
// clients of gRPC: see docs/gateways/envoy.md.
package main

import (
	"context"
	"errors"
	"flag"
	"fmt"
	"io"
	"log/slog"
	"net/http"
	"net/url"
	"os"
	"os/signal"
	"strings"
	"sync"
	"syscall"

	"github.com/sonde-probe/sonde/api"
	"github.com/sonde-probe/sonde/gateway"
	"github.com/sonde-probe/sonde/gateway/follow"
	"github.com/sonde-probe/sonde/gateway/xds"
	"github.com/sonde-probe/sonde/internal/dial"
	"github.com/sonde-probe/sonde/internal/files"
)

// maxFile bounds the files of tokens, in bytes.
const maxFile = 1 << 20

// Exit codes.
const (
	exitFailed = 1
	exitUsage  = 64
)

func main() {
	ctx, stop := signal.NotifyContext(context.Background(), syscall.SIGINT, syscall.SIGTERM)
	defer stop()
	os.Exit(run(ctx, os.Args[1:], os.Stderr))
}

// arguments are the arguments of the command.
type arguments struct {
	follow, followToken, followCA      string
	groups                             string
	listen, token, cert, key, clientCA string
	retries                            int
	socketForGroup, degradedStatus     bool
}

// run runs the command until ctx is done, and returns the exit code.
func run(ctx context.Context, words []string, out io.Writer) int {
	var a arguments
	flags := flag.NewFlagSet("sonde-xds", flag.ContinueOnError)
	flags.SetOutput(out)
	flags.StringVar(&a.follow, "follow", "http://"+api.DefaultListen, "`URL` of the API of the Sonde to follow")
	flags.StringVar(&a.followToken, "follow-token-file", "", "`file` with the token of that API")
	flags.StringVar(&a.followCA, "follow-ca", "", "`file` with the certificates that sign that of the API; default: those of the system")
	flags.StringVar(&a.groups, "groups", "", "`names` of the groups, separated by commas; required")
	flags.StringVar(&a.listen, "listen", "127.0.0.1:9782", "`address` and port to listen on, or unix: and the path of a socket")
	flags.BoolVar(&a.socketForGroup, "socket-for-group", false, "members of the group of this process can connect to the socket, too")
	flags.StringVar(&a.token, "token-file", "", "`file` with the token that clients must send")
	flags.StringVar(&a.cert, "cert", "", "`file` with the certificate of the listener")
	flags.StringVar(&a.key, "key", "", "`file` with its key")
	flags.StringVar(&a.clientCA, "client-ca", "", "`file` with the certificates that sign those of clients, which need one then")
	flags.IntVar(&a.retries, "retries", 0, "how many times clients of gRPC send a call again that ends with UNAVAILABLE before the headers of its response have arrived")
	flags.BoolVar(&a.degradedStatus, "degraded-status", false, "degraded members have the status DEGRADED, which clients of gRPC do not use")
	switch err := flags.Parse(words); {
	case errors.Is(err, flag.ErrHelp):
		return 0
	case err != nil:
		return exitUsage
	case flags.NArg() > 0:
		fmt.Fprintf(out, "sonde-xds: unexpected argument %q\n", flags.Arg(0))
		return exitUsage
	}
	log := slog.New(slog.NewTextHandler(out, nil))
	follower, gateways, err := build(a, log)
	if err != nil {
		fmt.Fprintln(out, "sonde-xds:", err)
		return exitFailed
	}
	var running sync.WaitGroup
	running.Go(func() { _ = follower.Run(ctx) })
	running.Go(func() { _ = gateways.Run(ctx) })
	running.Wait()
	return 0
}

// build makes what follows the groups, and what serves them.
func build(a arguments, log *slog.Logger) (*follow.Follower, *gateway.Gateways, error) {
	client, err := newClient(a)
	if err != nil {
		return nil, nil, err
	}
	if a.groups == "" {
		return nil, nil, errors.New("-groups is missing: write the names of groups, separated by commas")
	}
	names := strings.Split(a.groups, ",")
	follower, err := follow.New(follow.Config{Client: client, Groups: names, Logger: log})
	if err != nil {
		return nil, nil, err
	}
	config, err := newConfig(a)
	if err != nil {
		return nil, nil, err
	}
	gateways := gateway.New(gateway.Config{Groups: follower, Logger: log})
	return follower, gateways, gateways.Apply(map[string]gateway.Spec{
		"xds": {Output: "xds", Groups: names, New: func() gateway.Output { return xds.New(config) }},
	})
}

// newClient returns the client of the API to follow.
func newClient(a arguments) (*api.Client, error) {
	if u, err := url.Parse(a.follow); err != nil || u.Host == "" || u.Scheme != "http" && u.Scheme != "https" {
		return nil, fmt.Errorf("-follow is %q: it must be a URL such as http://%s", a.follow, api.DefaultListen)
	}
	token, err := readToken(a.followToken)
	if err != nil {
		return nil, err
	}
	trust, err := (&dial.TLS{CAFile: a.followCA}).Load()
	if err != nil {
		return nil, errors.New(strings.Replace(err.Error(), "tls.ca_file", "-follow-ca", 1))
	}
	return &api.Client{Base: a.follow, Token: token, HTTP: &http.Client{Transport: follow.NewTransport(trust)}}, nil
}

// newConfig returns the configuration of the server.
func newConfig(a arguments) (c xds.Config, err error) {
	c = xds.Config{Listen: a.listen, SocketForGroup: a.socketForGroup, Retries: a.retries, DegradedStatus: a.degradedStatus}
	if c.Token, err = readToken(a.token); err != nil {
		return c, err
	}
	switch {
	case (a.cert == "") != (a.key == ""):
		return c, errors.New("-cert and -key need each other")
	case a.clientCA != "" && a.cert == "":
		return c, errors.New("-client-ca needs -cert and -key")
	}
	if c.TLS, err = (api.TLS{CertFile: a.cert, KeyFile: a.key, ClientCAFile: a.clientCA}).Load(); err != nil {
		names := strings.NewReplacer("tls.cert_file", "-cert", "tls.key_file", "-key", "tls.client_ca_file", "-client-ca")
		return c, errors.New(names.Replace(err.Error()))
	}
	return c, c.Check()
}

// readToken reads a token from a file, or returns none without one.
func readToken(name string) (string, error) {
	if name == "" {
		return "", nil
	}
	text, err := files.Read(name, maxFile)
	token := strings.TrimSpace(string(text))
	if err == nil && token == "" {
		err = fmt.Errorf("%s is empty: it must contain a token", name)
	}
	return token, err
}
