package main

import (
	"errors"
	"fmt"
	"strings"

	"github.com/spf13/cobra"

	"github.com/sonde-probe/sonde/adapter/kube"
)

// entrypoints is the flag --entrypoint: what images run by themselves.
type entrypoints map[string][]string

func (e entrypoints) flag(c *cobra.Command) {
	c.Flags().Var(e, "entrypoint", "what an image runs by itself, `image=program arguments…`, for containers without a command; can be repeated")
}

// words returns the program and the arguments of a container. Where only the image
// knows them, and nothing else speaks against running it, the error says how to tell.
func (e entrypoints) words(c kube.Container) ([]string, error) {
	words, err := c.Words(e)
	if name := kube.ImageName(c.Image); err != nil && name != "" && len(c.Obstacles) == 0 {
		err = fmt.Errorf("%w (--entrypoint %s=PROGRAM tells)", err, name)
	}
	return words, err
}

// Set adds image=words. There may be no words.
func (e entrypoints) Set(s string) error {
	image, words, found := strings.Cut(s, "=")
	if !found || image == "" {
		return errors.New("must be image=program, or image= for one that runs its arguments")
	}
	e[image] = strings.Fields(words)
	return nil
}

// String returns nothing: there is no default to show.
func (e entrypoints) String() string { return "" }

// Type returns what stands for a value in the help.
func (e entrypoints) Type() string { return "image=program" }
