package root

import (
	"fmt"
	"io"
	"runtime"
	"runtime/debug"
	"strings"

	"github.com/spf13/cobra"
)

func versionCommand(program string) *cobra.Command {
	return &cobra.Command{
		Use:   "version",
		Short: "Show the version of this build",
		Args:  cobra.NoArgs,
		RunE: func(c *cobra.Command, _ []string) error {
			_, err := io.WriteString(c.OutOrStdout(), versionLine(program))
			return err
		},
	}
}

// versionLine returns the output of sonde version and sonde --version.
func versionLine(program string) string {
	return fmt.Sprintf("%s %s %s %s/%s\n", program, version(), runtime.Version(), runtime.GOOS, runtime.GOARCH)
}

// release is the version built by dist/release.sh; "" for other builds.
var release string

// version returns the release's version, or else the module's version, or else the commit of a checkout as recorded by the go
// command: "v1.2.3", "devel 1850e75+dirty".
func version() string {
	if release != "" {
		return release
	}
	info, ok := debug.ReadBuildInfo()
	if !ok {
		return "unknown"
	}
	if v := info.Main.Version; v != "" && v != "(devel)" {
		return v
	}
	settings := map[string]string{}
	for _, s := range info.Settings {
		settings[s.Key] = s.Value
	}
	revision := settings["vcs.revision"]
	if settings["vcs.modified"] == "true" {
		revision += "+dirty"
	}
	return strings.TrimSpace("devel " + revision)
}
