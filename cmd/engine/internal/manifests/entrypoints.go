package manifests

import (
	"errors"
	"fmt"
	"strings"

	"github.com/spf13/cobra"

	"github.com/sonde-probe/sonde/kube"
)

// Entrypoints is the flag --entrypoint: the program and the first arguments of an
// image's entrypoint, by the image's name.
type Entrypoints map[string][]string

// Register adds the flag to a command.
func (e Entrypoints) Register(c *cobra.Command) {
	c.Flags().Func("entrypoint", "the entrypoint of an image, `image=program arguments…`, for containers without a command; can be repeated", e.set)
}

// Command returns the program and the arguments of a container. When only the
// image knows them, and there is no other obstacle, the error names the flag.
func (e Entrypoints) Command(c kube.Container) ([]string, error) {
	words, err := c.Argv(e)
	if name := kube.ImageName(c.Image); err != nil && name != "" && len(c.Obstacles) == 0 {
		err = fmt.Errorf("%w; give it with --entrypoint %s=PROGRAM", err, name)
	}
	return words, err
}

// set adds image=words. There may be no words.
func (e Entrypoints) set(s string) error {
	image, words, found := strings.Cut(s, "=")
	if !found || image == "" {
		return errors.New("must be image=program, or image= for an image without an entrypoint")
	}
	e[image] = strings.Fields(words)
	return nil
}
