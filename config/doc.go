// Package config turns HCL text into a desired set of probes.
//
// Read collects files, Parse turns them into a Config. Parse starts nothing,
// never panics and never stops at the first mistake: it returns every one as a
// Diagnostic that says what is wrong, where, and what to write instead.
//
// The package knows no handler. What a handler block takes is data, a Schema:
// Of derives it from a Go struct; a plugin declares it when it is loaded.
package config
