// Package cli has the input and output that subcommands share: exit codes, diagnostics,
// logs, results of attempts, and files.
//
//	exit.go        exit codes, and the errors that carry them
//	diagnostics.go shows diagnostics of a configuration
//	log.go         makes the log of a command
//	logqueue.go    keeps a log's reader from blocking the program
//	report.go      writes the result of one attempt
//	screen.go      the terminal: its width and its colours
//	progress.go    what a command waits for
//	text.go        small helpers for text and JSON output
//	flag.go        flags with a duration, such as 14d, or with one of some words
//	file.go        token files, and replacing files
package cli
