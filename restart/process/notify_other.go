//go:build !linux

package process

import (
	"errors"
	"log/slog"
)

type notifier struct {
	path    string
	notices chan notice
}

func listenNotify(string) (*notifier, error) { return nil, errors.New("notify needs Linux") }

func (n *notifier) run(int, *vigil, func(string), *slog.Logger) {}

func (n *notifier) close() {}
