package main

import (
	"io"
	"log/slog"

	"github.com/sonde-probe/sonde/config"
)

// logLevel returns the level that a word in a configuration means.
func logLevel(l config.LogLevel) slog.Level {
	levels := map[config.LogLevel]slog.Level{"debug": slog.LevelDebug, "warn": slog.LevelWarn, "error": slog.LevelError}
	return levels[l] // info is zero
}

// newLogger returns the logger that an engine block asks for. Its level can be
// changed later.
func newLogger(w io.Writer, format config.LogFormat, level *slog.LevelVar) *slog.Logger {
	options := &slog.HandlerOptions{Level: level, ReplaceAttr: readable}
	if format == "json" || format != "text" && !isTerminal(w) {
		return slog.New(slog.NewJSONHandler(w, options))
	}
	return slog.New(slog.NewTextHandler(w, options))
}

// readable writes durations as text, since JSON would have them as nanoseconds.
func readable(_ []string, a slog.Attr) slog.Attr {
	if a.Value.Kind() == slog.KindDuration {
		a.Value = slog.StringValue(a.Value.Duration().String())
	}
	return a
}

// logDiagnostics logs what a configuration that was read by a running engine has
// wrong, a record for each.
func logDiagnostics(log *slog.Logger, diags config.Diagnostics) {
	for _, d := range diags {
		say := log.Error
		if d.Severity == config.Warning {
			say = log.Warn
		}
		var where []any
		if d.Range.File != "" {
			where = append(where, "at", d.Range.String())
		}
		if d.Hint != "" {
			where = append(where, "hint", d.Hint)
		}
		say(d.Summary, where...)
	}
}
