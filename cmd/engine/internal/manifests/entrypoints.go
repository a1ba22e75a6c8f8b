package manifests

import (
	"errors"
	"fmt"
	"path"
	"slices"
	"strings"

	"github.com/spf13/cobra"

	"github.com/sonde-probe/sonde/kube"
)

// entrypoints is the value of the flag --entrypoint. It maps an image's name without tag and digest, or the end of that name
// after a slash, to the program and first arguments of the image's entrypoint, which may be empty.
type entrypoints map[string][]string

// register adds the flag to a command.
func (e entrypoints) register(c *cobra.Command) {
	c.Flags().Func("entrypoint", "`image=program` and its arguments, the entrypoint of an image for containers without a command; can be repeated", e.set)
}

// command returns the program and the arguments of a container. If they are known only from the image, and there is no other
// obstacle, the error suggests the flag.
func (e entrypoints) command(c kube.Container) ([]string, error) {
	if len(c.Command) > 0 {
		return slices.Concat(c.Command, c.Args), nil
	}
	image := repository(c.Image)
	entrypoint, known := e.of(image)
	argv := slices.Concat(entrypoint, c.Args)
	var err error
	switch {
	case !known:
		err = fmt.Errorf("it has no command, and the entrypoint of image %q is not known", c.Image)
	case len(argv) == 0:
		err = fmt.Errorf("it has neither command nor args, and the entrypoint of image %q is empty", c.Image)
	default:
		return argv, nil
	}
	if image != "" && len(c.Obstacles) == 0 {
		err = fmt.Errorf("%w; give it with --entrypoint %s=PROGRAM", err, path.Base(image))
	}
	return nil, err
}

// of looks up the name of an image, then repeatedly the name without its leftmost element, such as the registry.
func (e entrypoints) of(image string) (words []string, known bool) {
	for image != "" && !known {
		words, known = e[image]
		_, image, _ = strings.Cut(image, "/")
	}
	return words, known
}

// repository returns an image's name without tag and digest.
func repository(image string) string {
	image, _, _ = strings.Cut(image, "@")
	if colon := strings.LastIndexByte(image, ':'); colon > strings.LastIndexByte(image, '/') {
		return image[:colon]
	}
	return image
}

// set adds an entrypoint, given as image=words. The words may be empty.
func (e entrypoints) set(s string) error {
	image, words, found := strings.Cut(s, "=")
	if !found || image == "" {
		return errors.New("must be image=program, or image= for an image without an entrypoint")
	}
	e[image] = strings.Fields(words)
	return nil
}
