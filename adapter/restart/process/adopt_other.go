//go:build !linux

package process

import (
	"context"
	"errors"

	"github.com/sonde-probe/sonde/internal/command"
)

// errAdopt is for what Config.Check rejects.
var errAdopt = errors.New("adopt needs Linux")

// Survivors returns nil: no instance outlives its engine on this system.
func Survivors(string) []Survivor { return nil }

// Resume returns false.
func (d *Driver) Resume(string) bool { return false }

// End does nothing.
func End(context.Context, Config, func(target string) bool) {}

func (d *Driver) takeOver(context.Context) (*instance, error) { return nil, nil }

func (d *Driver) startAdoptable(command.Plan) (*instance, error) { return nil, errAdopt }

// keeper has no use on this system.
type keeper struct {
	command  [2]interface{ Fd() uintptr }
	orders   chan order
	orphaned chan struct{}
}

func newKeeper(adopt) (*keeper, error) { return &keeper{}, errAdopt }

func (k *keeper) describe(int, string) error { return errAdopt }
func (k *keeper) remove()                    {}
func (k *keeper) serve(report)               {}
func (k *keeper) finish(report)              {}
