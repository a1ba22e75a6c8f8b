// Package cluster implements the commands that access the store of a cluster: sonde push, and sonde cluster drain, undrain,
// revisions and rollback.
//
//	cluster.go   the commands
//	store.go     store: the store named in the files of an engine
//	drain.go     sonde cluster drain and undrain
//	push.go      sonde push
//	propose.go   shared by push and rollback: plan, question, and push
//	await.go     waits for the responses of the engines
//	history.go   sonde cluster revisions and rollback
package cluster

import (
	"fmt"
	"strings"

	"github.com/spf13/cobra"

	"github.com/sonde-probe/sonde/cmd/engine/internal/daemon"
)

// Commands returns the commands of sonde cluster that need the store. If open is nil, each command only prints which program
// implements it.
func Commands(open daemon.OpenStore) []*cobra.Command {
	if open == nil {
		return []*cobra.Command{absent("drain"), absent("undrain"), absent("revisions"), absent("rollback")}
	}
	return []*cobra.Command{drainCommand(open), undrainCommand(open), revisionsCommand(open), rollbackCommand(open)}
}

// absent returns a hidden command that prints which program implements the command of this name.
func absent(name string) *cobra.Command {
	return &cobra.Command{
		Use: name, Hidden: true, DisableFlagParsing: true,
		Short: "Say which program has this command",
		RunE: func(c *cobra.Command, _ []string) error {
			_, path, _ := strings.Cut(c.CommandPath(), " ")
			return fmt.Errorf("this program has no etcd client: run sonde-fleet %s, which has the same arguments and flags", path)
		},
	}
}
