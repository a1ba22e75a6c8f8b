package sondecaddy

import (
	"context"
	"log/slog"

	"github.com/caddyserver/caddy/v2"
	"go.uber.org/zap/exp/zapslog"
)

// currentLog writes to the default log of the configuration in use: sources outlive the one
// with which they began. It has no attributes of its own.
type currentLog struct{}

func (currentLog) handler() slog.Handler {
	return zapslog.NewHandler(caddy.Log().Core(), zapslog.WithName("http.reverse_proxy.upstreams.sonde"))
}

// Enabled implements slog.Handler.
func (l currentLog) Enabled(ctx context.Context, level slog.Level) bool {
	return l.handler().Enabled(ctx, level)
}

// Handle implements slog.Handler.
func (l currentLog) Handle(ctx context.Context, r slog.Record) error {
	return l.handler().Handle(ctx, r)
}

// WithAttrs implements slog.Handler.
func (l currentLog) WithAttrs(all []slog.Attr) slog.Handler { return l.handler().WithAttrs(all) }

// WithGroup implements slog.Handler.
func (l currentLog) WithGroup(name string) slog.Handler { return l.handler().WithGroup(name) }
