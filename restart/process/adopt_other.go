//go:build !linux

package process

import (
	"context"
	"errors"
	"log/slog"
	"time"

	"github.com/sonde-probe/sonde/restart/process/internal/guard"
)

// OpenDirectory returns nil.
func OpenDirectory(string, string, bool) (*Directory, error) { return nil, nil }

// RunningIn returns nil.
func RunningIn(string) []string { return nil }

// End does nothing.
func (s Survivor) End(context.Context, string, *slog.Logger, func(target string) bool) error {
	return nil
}

func (d *Driver) takeOver(context.Context, <-chan time.Duration) (*instance, error) { return nil, nil }

// adopt returns an error: Config.Check rejects Adopt on this system.
func (d *Driver) adopt() (*guard.Adopt, error) {
	return nil, errors.New("adopt needs Linux")
}
