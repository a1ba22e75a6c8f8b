package kubeimport

import (
	"context"
	"errors"
	"fmt"
	"strings"

	"github.com/spf13/cobra"

	"github.com/sonde-probe/sonde/cmd/engine/internal/cli"
	"github.com/sonde-probe/sonde/cmd/engine/internal/handlers"
	"github.com/sonde-probe/sonde/cmd/engine/internal/manifests"
	"github.com/sonde-probe/sonde/config"
	"github.com/sonde-probe/sonde/config/format"
	"github.com/sonde-probe/sonde/probe"
)

// Command returns sonde import. Its exit code is 1 when a manifest cannot be
// read; then nothing is written.
func Command() *cobra.Command {
	f := importFlags{entrypoints: manifests.Entrypoints{}}
	c := &cobra.Command{
		Use:   "import MANIFEST...",
		Short: "Turn Kubernetes manifests into a configuration",
		Long: "Import reads manifests of pods, and of what makes pods of a template: Deployment, StatefulSet,\n" +
			"DaemonSet, ReplicaSet, ReplicationController, Job, CronJob, PodTemplate and lists of them. It takes\n" +
			"files, directories of *.yaml, *.yml and *.json files, and - for standard input. It writes a\n" +
			"configuration to standard output, with a target for each container.\n\n" +
			"A container that has a command becomes a process of the engine, unless --address or the pod's\n" +
			"status says that it runs elsewhere. What has no equal stands in a comment and is told as a warning.",
		Example: "  sonde import deploy/ > config.hcl\n" +
			"  kubectl get deployment web -o yaml | sonde import --address 10.0.0.7 -\n" +
			"  sonde import --entrypoint busybox= --entrypoint agnhost=/agnhost probes.yaml",
		Args: func(_ *cobra.Command, args []string) error {
			if len(args) == 0 {
				return errors.New("a MANIFEST is needed, or - for standard input")
			}
			return nil
		},
		RunE: func(c *cobra.Command, paths []string) error { return importManifests(c, &f, paths) },
	}
	c.Flags().StringVar(&f.address, "address", "", "`address` where the pods run already; nothing is started")
	f.entrypoints.Register(c)
	f.grpc.Register(c)
	return c
}

type importFlags struct {
	address     string
	entrypoints manifests.Entrypoints
	grpc        manifests.GRPCPlugin
}

func importManifests(c *cobra.Command, f *importFlags, paths []string) error {
	if err := f.grpc.Read(); err != nil {
		return err
	}
	all, errs := manifests.Read(c.InOrStdin(), paths)
	if len(all)+len(errs) == 0 {
		errs = append(errs, fmt.Errorf("there is no manifest in %s", strings.Join(paths, ", ")))
	}
	im := newImporter(f)
	for _, m := range all {
		im.manifest(m)
	}
	if errs = append(errs, im.errs...); len(errs) > 0 {
		return complain(c, errs)
	}
	text, err := im.text(c.Context())
	if err != nil {
		return err
	}
	if err := warn(c, im.warnings); err != nil {
		return err
	}
	_, err = c.OutOrStdout().Write(text)
	return err
}

// maxProblem bounds an error that is shown, in bytes: it can quote a manifest.
const maxProblem = 16 << 10

// complain shows errors, whose texts can come from a stranger.
func complain(c *cobra.Command, errs []error) error {
	for _, err := range errs {
		fmt.Fprintf(c.ErrOrStderr(), "error: %s\n", probe.CleanText(err.Error(), maxProblem))
	}
	fmt.Fprintf(c.ErrOrStderr(), "\n%s\n", cli.Plural(len(errs), "error"))
	return cli.ErrReported(cli.ExitFailed)
}

func warn(c *cobra.Command, warnings []string) error {
	if len(warnings) == 0 {
		return nil
	}
	_, err := fmt.Fprintf(c.ErrOrStderr(), "warning: %s\n\n%s\n", strings.Join(warnings, "\nwarning: "), cli.Plural(len(warnings), "warning"))
	return err
}

// text returns the configuration, laid out. It is checked as sonde validate would:
// what cannot be used is not written.
func (im *importer) text(ctx context.Context) ([]byte, error) {
	head, err := im.plugin()
	if err != nil {
		return nil, err
	}
	text, diags := format.Source(config.Source{Name: "import.hcl", Bytes: []byte(head + im.out.String())})
	if !diags.HasErrors() {
		p := handlers.NewPlugins(ctx, handlers.WaitForConfigure, handlers.Silent)
		defer p.Close()
		_, diags = new(handlers.Inputs).Parse([]config.Source{{Name: "import.hcl", Bytes: text}}, nil, p)
	}
	if err := diags.Err(); err != nil {
		return nil, fmt.Errorf("the configuration that was made is wrong: %w", err)
	}
	return text, nil
}
