package main

import (
	"io"
	"os"

	"golang.org/x/term"
)

func isTerminal(w io.Writer) bool {
	f, ok := w.(*os.File)
	return ok && term.IsTerminal(int(f.Fd()))
}

// colored reports whether w shall get colours: it is a terminal, and the user has
// not asked for none (https://no-color.org).
func colored(w io.Writer) bool { return os.Getenv("NO_COLOR") == "" && isTerminal(w) }
