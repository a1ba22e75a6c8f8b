// Package cluster has the commands that read or write the store of a cluster: sonde push, and sonde cluster drain, undrain,
// revisions and rollback.
//
//	cluster.go   the commands
//	store.go     store: the store, which the files of an engine name
//	drain.go     sonde cluster drain and undrain
//	push.go      sonde push
//	propose.go   what push and rollback share: plan, question, and push
//	await.go     waits for the answers of the engines
//	history.go   sonde cluster revisions and rollback
package cluster

import (
	"fmt"
	"strings"

	"github.com/spf13/cobra"

	"github.com/sonde-probe/sonde/cmd/engine/internal/daemon"
)

// Commands returns the commands of sonde cluster that need the store. Without a function that opens it they say which program
// has them.
func Commands(open daemon.OpenStore) []*cobra.Command {
	if open == nil {
		return []*cobra.Command{absent("drain"), absent("undrain"), absent("revisions"), absent("rollback")}
	}
	return []*cobra.Command{drainCommand(open), undrainCommand(open), revisionsCommand(open), rollbackCommand(open)}
}

// absent returns a hidden command that says which program has the command of this name.
func absent(name string) *cobra.Command {
	return &cobra.Command{
		Use: name, Hidden: true, DisableFlagParsing: true,
		Short: "Say which program has this command",
		RunE: func(c *cobra.Command, _ []string) error {
			_, path, _ := strings.Cut(c.CommandPath(), " ")
			return fmt.Errorf("this program has no client of etcd: run sonde-fleet %s, which takes the same arguments and flags", path)
		},
	}
}
