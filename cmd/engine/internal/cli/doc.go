// Package cli holds what the commands of sonde share in how they talk with their
// user: exit codes, diagnostics, logs, reports of attempts, and files.
//
//	exit.go        exit codes, and the errors that carry them
//	diagnostics.go shows diagnostics of a configuration
//	log.go         makes the log of a command
//	report.go      shows the result of one attempt
//	text.go        makes text fit for one line of a terminal
//	file.go        reads and replaces files
package cli
