// Package discover finds the addresses of targets: in files, by HTTP, in DNS, in the catalog of Consul, and
// among containers.
//
//	discover.go  Source, and what it finds
//	finder.go    Finder: runs Sources, and keeps what they have found last
//	groups.go    the format of Prometheus: groups of addresses with labels
//	file.go      files in that format
//	http.go      a server that answers in that format
//	dns.go       addresses and services of DNS
//	consul.go    services of Consul
//	docker.go    containers of Docker and Podman
package discover

import (
	"context"
	"fmt"
	"net"
	"net/netip"
	"strconv"
	"strings"
	"time"

	"github.com/sonde-probe/sonde/internal/dial"
)

// Element is what is found about one target.
type Element struct {
	Address string            `json:"address"`          // an IP address or a host name; empty for a container
	Port    uint16            `json:"port,omitempty"`   // 0 if it is not known
	Labels  map[string]string `json:"labels,omitempty"` // what the source says of it, as labels that a target may have
	Meta    map[string]string `json:"meta,omitempty"`   // other labels, such as job and __meta_rack, and what the source knows besides
}

// Elements are what a source has found, by keys: the address, a colon and the port, or only the address without one; the name of a container.
type Elements map[string]Element

// Source is where elements are found.
type Source interface {
	// Run calls found with each answer, also with one that is as the one before, until ctx is done. With an error other than a
	// *LeftOutError the answer may lack elements, and says nothing about those that it lacks; Run goes on. It calls found from
	// one goroutine.
	Run(ctx context.Context, found func(Elements, error))
}

// Bounds of an answer.
const (
	MaxElements = 200_000
	maxAnswer   = 64 << 20 // bytes
	maxKey      = 400      // bytes
	maxLabels   = 100      // of an element
	maxLabel    = 4096     // bytes of a name and a value
)

// LeftOutError says that elements of an answer have invalid addresses or labels, and are left out. The others are complete.
type LeftOutError struct {
	N     int
	First string // one of them, and what is wrong with it
}

// Error implements error.
func (e *LeftOutError) Error() string {
	if e.N == 1 {
		return "one element is left out: " + e.First
	}
	return fmt.Sprintf("%d elements are left out; the first: %s", e.N, e.First)
}

// answer is an answer that is being read.
type answer struct {
	Elements
	left LeftOutError
}

// leaveOut notes an element that is left out.
func (a *answer) leaveOut(format string, args ...any) {
	if a.left.N++; a.left.N == 1 {
		a.left.First = fmt.Sprintf(format, args...)
	}
}

// err returns a *LeftOutError if elements are left out, or nil.
func (a *answer) err() error {
	if a.left.N > 0 {
		return &a.left
	}
	return nil
}

// add adds an element, or leaves it out. It returns an error if the answer has too many.
func (a *answer) add(e Element) error {
	key := e.Address
	if e.Port > 0 {
		key = net.JoinHostPort(e.Address, strconv.Itoa(int(e.Port)))
	}
	_, err := netip.ParseAddr(e.Address)
	switch {
	case len(key) > maxKey || err != nil && !dial.IsHostName(e.Address):
		a.leaveOut("%.80q is no address", key)
	case len(e.Labels)+len(e.Meta) > maxLabels:
		a.leaveOut("%s has %d labels, at most %d are allowed", key, len(e.Labels)+len(e.Meta), maxLabels)
	case len(a.Elements) == MaxElements:
		return fmt.Errorf("the answer has more than %d elements", MaxElements)
	default:
		a.Elements[key] = e
	}
	return nil
}

// address splits an address with an optional port, such as "10.0.0.7:9100", "[::1]:80" and "db".
func address(text string) (e Element, ok bool) {
	host, port, err := net.SplitHostPort(text)
	if err != nil { // without a port
		return Element{Address: strings.TrimSuffix(strings.TrimPrefix(text, "["), "]")}, true
	}
	n, err := strconv.ParseUint(port, 10, 16)
	return Element{Address: host, Port: uint16(n)}, err == nil && n > 0
}

// repeat calls ask at once, and again after the time that it returns, until ctx is done.
func repeat(ctx context.Context, ask func() (again time.Duration)) {
	for ctx.Err() == nil {
		t := time.NewTimer(ask())
		select {
		case <-ctx.Done():
		case <-t.C:
		}
		t.Stop()
	}
}
