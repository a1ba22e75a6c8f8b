package dial

import (
	"context"
	"errors"
	"net"
	"net/netip"
	"sync/atomic"

	"github.com/sonde-probe/sonde/internal/files"
)

// hostsFile is the file that package net reads before it queries a name server.
const hostsFile = "/etc/hosts"

// hostsLoaded is set once package net has read the hosts file. Package net keeps its contents while it cannot read a newer file.
var hostsLoaded atomic.Bool

// loadHosts makes package net read the hosts file. An error is a shortage.
func loadHosts() error {
	if hostsLoaded.Load() {
		return nil
	}
	name, err := firstHost()
	if err != nil {
		return err
	}
	if name != "" {
		refuse := func(context.Context, string, string) (net.Conn, error) { return nil, net.ErrClosed }
		resolver := net.Resolver{PreferGo: true, Dial: refuse}
		_, err = resolver.LookupNetIP(context.Background(), "ip", name)
	}
	if err != nil { // nsswitch.conf may forbid the file, or the file could not be read just now
		if _, err := firstHost(); err != nil {
			return err
		}
	}
	hostsLoaded.Store(true)
	return nil
}

// firstHost returns the first name in the hosts file, or "" if there is none. An error is a shortage.
func firstHost() (string, error) {
	text, err := files.Read(hostsFile, maxConf)
	if errors.Is(err, files.ErrTooLarge) {
		return "localhost", nil
	}
	if err != nil {
		return "", ifShortage(err)
	}
	for fields := range fieldsOf(text) {
		if _, err := netip.ParseAddr(fields[0]); err == nil && len(fields) > 1 {
			return fields[1], nil
		}
	}
	return "", nil
}
