// Package discover finds the addresses of targets in files, by HTTP, in DNS, in the catalog
// of Consul, and among containers.
//
//	discover.go  Source, and the elements that it finds
//	finder.go    Finder: runs Sources, and keeps their latest elements
//	groups.go    the format of Prometheus: groups of addresses with labels
//	file.go      files in that format
//	http.go      HTTP servers that respond in that format
//	dns.go       addresses and services in DNS
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

// Element is a target found by a Source.
type Element struct {
	Address string            `json:"address"`          // an IP address or a host name; empty for a container
	Port    uint16            `json:"port,omitempty"`   // 0 if unknown
	Labels  map[string]string `json:"labels,omitempty"` // labels reported by the source that are valid labels of a target
	Meta    map[string]string `json:"meta,omitempty"`   // other labels, such as job and __meta_rack, and further attributes that the source reports
}

// Elements are the elements found by a Source. The key is the address with the port, if any, as in
// 10.0.0.7:80, or the name of a container.
type Elements map[string]Element

// Source finds elements.
type Source interface {
	// Run calls found with each response, even if it equals the previous one, until ctx is done. If the error is not nil
	// and not a *LeftOutError, the response may lack elements, which does not mean that they are gone; Run continues. It
	// calls found from one goroutine.
	Run(ctx context.Context, found func(Elements, error))
}

// Limits on a response.
const (
	MaxElements = 200_000
	maxAnswer   = 64 << 20 // bytes
	maxKey      = 400      // bytes
	maxLabels   = 100      // per element
	maxLabel    = 4096     // bytes of a name and its value
)

// LeftOutError reports that elements of a response are left out since their addresses or labels are invalid. The
// response is otherwise complete.
type LeftOutError struct {
	N     int
	First string // the first of them, and its problem
}

// Error implements error.
func (e *LeftOutError) Error() string {
	if e.N == 1 {
		return "one element is left out: " + e.First
	}
	return fmt.Sprintf("%d elements are left out; the first: %s", e.N, e.First)
}

// answer collects the elements of a response.
type answer struct {
	Elements
	left LeftOutError
}

// leaveOut records an element that is left out.
func (a *answer) leaveOut(format string, args ...any) {
	if a.left.N++; a.left.N == 1 {
		a.left.First = fmt.Sprintf(format, args...)
	}
}

// err returns a *LeftOutError if elements were left out, or nil.
func (a *answer) err() error {
	if a.left.N > 0 {
		return &a.left
	}
	return nil
}

// add adds an element, or leaves it out if it is invalid. It returns an error if there are too many elements.
func (a *answer) add(e Element) error {
	key := e.Address
	if e.Port > 0 {
		key = net.JoinHostPort(e.Address, strconv.Itoa(int(e.Port)))
	}
	_, err := netip.ParseAddr(e.Address)
	switch {
	case len(key) > maxKey || err != nil && !dial.IsHostName(e.Address):
		a.leaveOut("%.80q is not an address", key)
	case len(e.Labels)+len(e.Meta) > maxLabels:
		a.leaveOut("%s has %d labels, at most %d are allowed", key, len(e.Labels)+len(e.Meta), maxLabels)
	case len(a.Elements) == MaxElements:
		return fmt.Errorf("the response has more than %d elements", MaxElements)
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

// repeat calls ask immediately, and again after the duration that it returns, until ctx is done.
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
