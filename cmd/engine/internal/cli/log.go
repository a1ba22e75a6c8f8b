package cli

import (
	"io"
	"log/slog"

	"github.com/sonde-probe/sonde/config"
)

// NewLogger returns a logger in the format that an engine block asks for. The
// caller can change its level later.
func NewLogger(w io.Writer, format string, level *slog.LevelVar) *slog.Logger {
	options := &slog.HandlerOptions{Level: level, ReplaceAttr: durationText}
	if format == "json" || format != "text" && !IsTerminal(w) {
		return slog.New(slog.NewJSONHandler(w, options))
	}
	return slog.New(slog.NewTextHandler(w, options))
}

// durationText writes durations as text; JSON would have nanoseconds.
func durationText(_ []string, a slog.Attr) slog.Attr {
	if a.Value.Kind() == slog.KindDuration {
		a.Value = slog.StringValue(a.Value.Duration().String())
	}
	return a
}

// LogDiagnostics logs the diagnostics of a configuration that an engine has read
// while it runs, one record each.
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
		if d.Severity == config.Warning {
			log.Warn("configuration warning", attrs...)
		} else {
			log.Error("configuration error", attrs...)
		}
	}
}
