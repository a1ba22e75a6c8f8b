package manifests

import (
	"fmt"
	"math"
	"os"
	"path/filepath"
	"strconv"
	"strings"

	"github.com/spf13/cobra"

	"github.com/sonde-probe/sonde/cmd/engine/internal/blackboximport"
	"github.com/sonde-probe/sonde/cmd/engine/internal/cli"
	"github.com/sonde-probe/sonde/cmd/engine/internal/compose"
	"github.com/sonde-probe/sonde/cmd/engine/internal/embedded"
	"github.com/sonde-probe/sonde/cmd/engine/internal/handlers"
	"github.com/sonde-probe/sonde/cmd/engine/internal/peerimport"
	"github.com/sonde-probe/sonde/config"
	"github.com/sonde-probe/sonde/config/document"
	"github.com/sonde-probe/sonde/internal/files"
	"github.com/sonde-probe/sonde/kube"
	"github.com/sonde-probe/sonde/probe"
	"github.com/sonde-probe/sonde/wasmhost"
)

type flags struct {
	runtime     string
	address     string
	entrypoints entrypoints
	dns         string   // file of the dns plugin
	allow       []string // for modules of blackbox_exporter
	lax         bool     // for modules of blackbox_exporter and checks of other tools
}

// Command returns the command sonde import. If a manifest cannot be read, the exit code is 1 and nothing is written.
func Command() *cobra.Command {
	f := flags{entrypoints: entrypoints{}}
	c := &cobra.Command{
		Use:   "import FILE...",
		Short: "Turn Kubernetes manifests, or the configuration of another tool, into a configuration",
		Long: "Import reads manifests of pods and of objects with a pod template: Deployment, StatefulSet, DaemonSet,\n" +
			"ReplicaSet, ReplicationController, Job, CronJob, PodTemplate, and lists of them. Arguments are files,\n" +
			"directories of *.yaml, *.yml and *.json files, or - for standard input. It writes a configuration to\n" +
			"standard output, with a target for each container.\n\n" +
			"A container with a command becomes a process of the engine, unless --address or the pod's status says\n" +
			"that it runs elsewhere. With --runtime docker each container becomes one that the engine makes by Docker or\n" +
			"Podman. What Sonde does not support is written as a comment and shown as a warning.\n\n" +
			"A single file with the modules of blackbox_exporter (blackbox.yml) becomes probe_module blocks. Hosts that\n" +
			"they may probe are given with --allow. A module whose attempts could succeed where those of blackbox_exporter\n" +
			"fail becomes a comment, unless --lax is given.\n\n" +
			"A single supervisord.conf, monitrc or configuration of gatus becomes targets. A check that would be laxer here\n" +
			"becomes a comment, unless --lax is given. What is not converted is a comment and a warning, too.\n\n" +
			"A single compose file becomes targets that follow the containers of docker compose, with their health checks\n" +
			"as probes. So does sonde run --compose, without a file.",
		Example: "  sonde import deploy/ > config.hcl\n" +
			"  sonde import --allow '*.example.com' blackbox.yml > config.hcl\n" +
			"  sonde import /etc/supervisor/supervisord.conf > config.hcl\n" +
			"  sonde import compose.yaml > config.hcl\n" +
			"  kubectl get deployment web -o yaml | sonde import --address 10.0.0.7 -\n" +
			"  sonde import --runtime docker deploy/ > config.hcl\n" +
			"  sonde import --entrypoint busybox= --entrypoint agnhost=/agnhost probes.yaml",
		Args: cli.Args(1, math.MaxInt, "a FILE is required, or - for standard input"),
		RunE: func(c *cobra.Command, paths []string) error { return run(c, &f, paths) },
	}
	cli.WordVar(c.Flags(), &f.runtime, "runtime", "", asProcess, "what containers of manifests become: process, or docker for container blocks", asProcess, inDocker)
	c.Flags().StringVar(&f.address, "address", "", "`address` of pods that run already; the configuration starts no process")
	f.entrypoints.register(c)
	c.Flags().StringVar(&f.dns, "dns-plugin", "", "the `file` of the plugin for the prober dns of blackbox_exporter")
	c.Flags().StringArrayVar(&f.allow, "allow", nil, "a `host` that modules of blackbox_exporter may probe, as in allow of probe_module; can be repeated")
	c.Flags().BoolVar(&f.lax, "lax", false, "write modules and checks of other tools also without conditions that Sonde does not support")
	return c
}

func run(c *cobra.Command, f *flags, paths []string) error {
	files, errs := readFiles(c.InOrStdin(), paths)
	if len(files) == 1 && len(errs) == 0 {
		if importTool := toolOf(files[0].Text); importTool != nil {
			if f.runtime == inDocker {
				return cli.UsageError("--runtime is for Kubernetes manifests, and %s is the file of another tool: leave it out", files[0].Name)
			}
			return importTool(c, f, files[0])
		}
	}
	im := newImporter(f)
	if f.runtime == inDocker {
		if f.address != "" {
			return cli.UsageError("--address is for pods that run elsewhere, and --runtime docker makes their containers here: leave out one of the two")
		}
		im.writeState()
	}
	for _, file := range files {
		found, wrong := kube.Read(file.Name, file.Text)
		errs = append(errs, wrong...)
		for _, m := range found {
			im.manifest(m)
		}
	}
	if im.first && len(errs) == 0 {
		errs = append(errs, fmt.Errorf("there is no manifest in %s", strings.Join(paths, ", ")))
	}
	if errs = append(errs, im.errs...); len(errs) > 0 {
		show(c, "error", errs)
		return cli.ErrReported(cli.ExitFailed)
	}
	return write(c, im.doc.Bytes(), im.warnings, check(c, im.doc.Bytes()))
}

// toolOf returns the function that imports the file of another tool, or nil for manifests.
func toolOf(text []byte) func(*cobra.Command, *flags, source) error {
	switch {
	case blackboximport.Recognizes(text):
		return importBlackbox
	case peerimport.Recognizes(text):
		return func(c *cobra.Command, f *flags, file source) error {
			doc, warnings, err := peerimport.Write(file.Name, file.Text, peerimport.Options{Lax: f.lax})
			return writePeer(c, doc, warnings, err)
		}
	case compose.Recognizes(text):
		return func(c *cobra.Command, _ *flags, file source) error {
			doc, warnings, err := compose.Write(file.Name, file.Text, os.LookupEnv)
			return writePeer(c, doc, warnings, err)
		}
	}
	return nil
}

// importBlackbox converts the modules of a blackbox_exporter configuration.
func importBlackbox(c *cobra.Command, f *flags, file source) error {
	dns, err := plugin(f.dns)
	if err != nil {
		return err
	}
	_, noGRPC := embedded.GRPC()
	options := blackboximport.Options{Allow: f.allow, Lax: f.lax, DNS: dns, NoGRPC: noGRPC, Refused: make(map[string]string)}
	for {
		doc, warnings, err := blackboximport.Write(file.Name, file.Text, options)
		if err != nil {
			show(c, "error", []error{err})
			return cli.ErrReported(cli.ExitFailed)
		}
		if diags := check(c, doc.Bytes()); !refuse(options.Refused, diags) {
			return write(c, doc.Bytes(), warnings, diags)
		}
	}
}

// writePeer writes the converted configuration of another tool.
func writePeer(c *cobra.Command, doc *document.Document, warnings []string, err error) error {
	if err != nil {
		show(c, "error", []error{err})
		return cli.ErrReported(cli.ExitFailed)
	}
	return write(c, doc.Bytes(), warnings, check(c, doc.Bytes()))
}

// refuse adds the modules with errors, and their errors, to refused. It reports whether it added any.
func refuse(refused map[string]string, diags config.Diagnostics) (isNew bool) {
	for _, d := range diags {
		quoted, err := strconv.QuotedPrefix(strings.TrimPrefix(d.Where, "probe_module "))
		name, wrong := strconv.Unquote(quoted)
		if d.IsWarning || err != nil || wrong != nil || refused[name] != "" {
			continue
		}
		refused[name], isNew = d.Summary, true
	}
	return isNew
}

// plugin returns the file of the flag --dns-plugin with its hash. Without the flag it returns none.
func plugin(file string) (blackboximport.Plugin, error) {
	if file == "" {
		return blackboximport.Plugin{}, nil
	}
	module, err := files.ReadRegular(file, wasmhost.DefaultModuleSize)
	if err != nil {
		return blackboximport.Plugin{}, fmt.Errorf("--dns-plugin: %w", err)
	}
	if file, err = filepath.Abs(file); err != nil { // so that the configuration can be moved
		return blackboximport.Plugin{}, err
	}
	return blackboximport.Plugin{File: file, SHA256: cli.SHA256(module)}, nil
}

// maxProblem limits a displayed error or warning, which may quote a manifest, in bytes.
const maxProblem = 16 << 10

// show writes errors or warnings, and their number, to standard error.
func show[T any](c *cobra.Command, kind string, problems []T) {
	if len(problems) == 0 {
		return
	}
	for _, problem := range problems {
		fmt.Fprintf(c.ErrOrStderr(), "%s: %s\n", kind, probe.CleanText(fmt.Sprint(problem), maxProblem))
	}
	fmt.Fprintf(c.ErrOrStderr(), "\n%s\n", cli.Plural(len(problems), kind))
}

// write writes warnings and a configuration, or only the errors that check has found.
func write(c *cobra.Command, text []byte, warnings []string, diags config.Diagnostics) error {
	lines := strings.Split(string(text), "\n")
	var errs []error
	for _, d := range diags {
		if !d.IsWarning { // with the line, since the user does not have the file
			line := lines[min(max(d.Range.Start.Line-1, 0), len(lines)-1)]
			errs = append(errs, fmt.Errorf("the converted configuration is invalid: %s: %q: %s", d.Where, strings.TrimSpace(line), d.Summary))
		}
	}
	if len(errs) > 0 {
		show(c, "error", errs)
		return cli.ErrReported(cli.ExitFailed)
	}
	for i, text := range warnings {
		warnings[i] = probe.OneLine(text, maxProblem)
	}
	show(c, "warning", warnings)
	_, err := c.OutOrStdout().Write(text)
	return err
}

// check runs the checks of sonde validate.
func check(c *cobra.Command, text []byte) config.Diagnostics {
	p := handlers.NewPlugins(c.Context(), handlers.WaitForChecks, handlers.Silent)
	defer p.Close()
	p.Progress = handlers.StartProgress(c)
	defer p.Progress.Stop()
	_, diags := (&handlers.Inputs{AllowEmpty: true}).Parse([]config.Source{{Name: "import.hcl", Bytes: text}}, nil, p)
	return diags
}
