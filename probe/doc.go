// Package probe holds the words every other package shares: what is probed
// (Target, Instance), when (Rule), how (Handler), what one attempt found
// (Result) and what was decided (Verdict).
//
// It imports the standard library only, starts no goroutine and reads no
// clock. Every zero value is safe: it never means healthy.
package probe
