package dial

import (
	"bytes"
	"errors"
	"fmt"
	"iter"
	"net"
	"net/netip"
	"os"
	"slices"
	"strings"
	"time"

	"github.com/sonde-probe/sonde/internal/files"
	"github.com/sonde-probe/sonde/internal/shortage"
)

// resolvConf is where package net finds the name servers.
const resolvConf = "/etc/resolv.conf"

// maxConf is how much of resolvConf and hostsFile is read, in bytes.
const maxConf = 64 << 10

// errUnlisted is the cause of a localError: package net has asked a name server that is
// not in resolv.conf.
var errUnlisted = errors.New("not in " + resolvConf + ", which has changed in the last seconds")

// errSilent is the cause of a localError: of several name servers none has answered.
var errSilent = errors.New("none of the name servers in " + resolvConf + " has answered")

// defaultServers are those of package net when it cannot read resolv.conf (defaultNS).
var defaultServers = []string{"127.0.0.1:53", "[::1]:53"}

// settledAge is how long ago a resolv.conf without name servers has to have been changed
// before package net's own are asked.
const settledAge = 10 * time.Second

// checkServer returns an error if package net wants to ask a name server of its own that
// is not in resolv.conf, because it could not read the file, or has not read it since it
// was changed: it reads the file again after five seconds. A file without any name server
// that has just changed may be about to be written. An error is this machine's fault.
func checkServer(server string) error {
	if !slices.Contains(defaultServers, server) {
		return nil
	}
	text, err := files.Read(resolvConf, maxConf)
	if err != nil {
		return ifShortage(err)
	}
	info, err := os.Stat(resolvConf)
	if err != nil {
		return ifShortage(err)
	}
	host, _, _ := net.SplitHostPort(server)
	listed := false
	for address := range listedServers(text) {
		if address == host {
			return nil
		}
		listed = true
	}
	if age := time.Since(info.ModTime()); !listed && (age < 0 || age > settledAge) {
		return nil
	}
	return fmt.Errorf("name server %s: %w", server, errUnlisted)
}

// maxServers is how many name servers package net asks.
const maxServers = 3

// countServers returns how many name servers of resolv.conf package net asks, each counted once; 0 if it cannot be read.
func countServers() int {
	text, err := files.Read(resolvConf, maxConf)
	if err != nil {
		return 0
	}
	var servers []string
	for address := range listedServers(text) {
		if _, err := netip.ParseAddr(address); err == nil && len(servers) < maxServers {
			servers = append(servers, address)
		}
	}
	slices.Sort(servers)
	return len(slices.Compact(servers))
}

// listedServers yields the name servers in the text of resolv.conf, as they stand there.
func listedServers(text []byte) iter.Seq[string] {
	return func(yield func(address string) bool) {
		for fields := range fieldsOf(text) {
			if fields[0] == "nameserver" && len(fields) > 1 && !yield(fields[1]) {
				return
			}
		}
	}
}

// fieldsOf yields the fields of each line that has some, of a text such as hosts(5) or
// resolv.conf(5), where # begins a comment.
func fieldsOf(text []byte) iter.Seq[[]string] {
	return func(yield func(fields []string) bool) {
		for line := range bytes.Lines(text) {
			line, _, _ = bytes.Cut(line, []byte("#"))
			if fields := strings.Fields(string(line)); len(fields) > 0 && !yield(fields) {
				return
			}
		}
	}
}

// ifShortage returns err if this machine is at fault. A file that does not exist, or must
// not be read, counts as empty.
func ifShortage(err error) error {
	if shortage.Is(err) {
		return err
	}
	return nil
}
