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

// resolvConf is the file in which package net finds the name servers.
const resolvConf = "/etc/resolv.conf"

// maxConf is how many bytes of resolvConf and hostsFile are read.
const maxConf = 64 << 10

// errUnlisted is the cause of a localError: package net tried to query a name server that is not in resolv.conf.
var errUnlisted = errors.New("not in " + resolvConf + ", which has changed in the last seconds")

// errSilent is the cause of a localError: none of several name servers has responded.
var errSilent = errors.New("none of the name servers in " + resolvConf + " has answered")

// defaultServers are the name servers that package net uses if it cannot read resolv.conf (defaultNS).
var defaultServers = []string{"127.0.0.1:53", "[::1]:53"}

// settledAge is the minimum age of a resolv.conf without name servers before package net's defaults are queried.
const settledAge = 10 * time.Second

// checkServer returns an error if package net tries to query one of its default name servers that is not in resolv.conf: it could
// not read the file, or has not read it since it changed, since it rereads it only every five seconds. A file without any name
// server that has just changed may be in the process of being written. An error is this machine's fault.
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

// maxServers is the maximum number of name servers that package net queries.
const maxServers = 3

// countServers returns the number of distinct name servers of resolv.conf that package net queries; 0 if the file cannot be read.
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

// listedServers yields the name servers in the text of resolv.conf, as written there.
func listedServers(text []byte) iter.Seq[string] {
	return func(yield func(address string) bool) {
		for fields := range fieldsOf(text) {
			if fields[0] == "nameserver" && len(fields) > 1 && !yield(fields[1]) {
				return
			}
		}
	}
}

// fieldsOf yields the fields of each non-empty line of a text such as hosts(5) or resolv.conf(5), where # begins a comment.
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

// ifShortage returns err if this machine is at fault, otherwise nil: a file that does not exist, or that must not be read, counts
// as empty.
func ifShortage(err error) error {
	if shortage.Is(err) {
		return err
	}
	return nil
}
