package cli

import (
	"io"
	"log/slog"

	"github.com/sonde-probe/sonde/config"
	"github.com/sonde-probe/sonde/internal/redact"
)

// NewLogger returns a logger in a format of the engine block. The caller can change level later.
func NewLogger(w io.Writer, format string, level *slog.LevelVar) *slog.Logger {
	return newLogger(w, format, level, new(redact.Redactor))
}

// newLogger is like NewLogger, and also redacts secrets.
func newLogger(w io.Writer, format string, level *slog.LevelVar, secrets *redact.Redactor) *slog.Logger {
	options := &slog.HandlerOptions{Level: level, ReplaceAttr: func(_ []string, a slog.Attr) slog.Attr { return readable(a, secrets) }}
	if format == "json" || format != "text" && !IsTerminal(w) {
		return slog.New(slog.NewJSONHandler(w, options))
	}
	return slog.New(slog.NewTextHandler(w, options))
}

// readable formats durations as text, since JSON would have nanoseconds, and redacts texts.
func readable(a slog.Attr, secrets *redact.Redactor) slog.Attr {
	switch a.Value.Kind() {
	case slog.KindDuration:
		a.Value = slog.StringValue(a.Value.Duration().String())
	case slog.KindString:
		a.Value = slog.StringValue(secrets.Text(a.Value.String()))
	case slog.KindAny:
		if err, ok := a.Value.Any().(error); ok {
			a.Value = slog.StringValue(secrets.Text(err.Error()))
		}
	}
	return a
}

// LogDiagnostics logs the diagnostics of a configuration that a running engine has read, as one record each.
func LogDiagnostics(log *slog.Logger, diags config.Diagnostics) {
	for _, d := range diags {
		attrs := []any{"problem", d.Summary}
		if d.Range.File != "" {
			attrs = append(attrs, "at", d.Range.String())
		}
		if d.With != "" {
			attrs = append(attrs, "with", d.With)
		}
		if d.Hint != "" {
			attrs = append(attrs, "hint", d.Hint)
		}
		if d.IsWarning {
			log.Warn("configuration warning", attrs...)
		} else {
			log.Error("configuration error", attrs...)
		}
	}
}
