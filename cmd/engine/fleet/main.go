// Certificates of appliances may have a negative serial number. Like curl, accept them: verification does not use the number.
//go:debug x509negativeserial=1

// Command fleet is the binary sonde-fleet: the commands of sonde, with engines that can share their targets over etcd. It is a
// separate Go module, since it links the client of etcd.
package main

import (
	"runtime"

	"github.com/sonde-probe/sonde/cmd/engine/internal/daemon"
	"github.com/sonde-probe/sonde/cmd/engine/internal/root"
	"github.com/sonde-probe/sonde/config"
	"github.com/sonde-probe/sonde/fleet/etcd"
)

func init() { runtime.LockOSThread() } // see root.Main

func main() { root.Main(root.Options{Program: "sonde-fleet", OpenStore: openStore}) }

// openStore implements daemon.OpenStore.
func openStore(c config.Cluster) (daemon.Store, error) {
	tls, err := c.LoadTLS()
	if err != nil {
		return nil, err
	}
	return etcd.Open(etcd.Config{Endpoints: c.Endpoints, Prefix: c.Prefix, TLS: tls, Username: c.Username, Password: c.Password, RenewTLS: c.LoadTLS})
}
