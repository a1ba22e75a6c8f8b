// Package cli contains the input and output code that subcommands share: exit codes, diagnostics, logs, results of attempts,
// and files.
//
//	exit.go        exit codes, and errors with exit codes
//	diagnostics.go shows diagnostics of a configuration
//	log.go         creates the log of a command
//	logqueue.go    keeps a slow reader of the log from blocking the program
//	report.go      writes the result of one attempt
//	screen.go      the terminal: its size and its colours
//	progress.go    shows the step that a command waits for
//	text.go        small helpers for text and JSON output
//	flag.go        flags for durations, such as 14d, and for one of several words
//	file.go        token files and hashes
package cli
