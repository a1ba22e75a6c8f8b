package kube

import (
	"crypto/sha256"
	"encoding/hex"
	"encoding/json"
	"fmt"

	"github.com/sonde-probe/sonde/probe"
)

// Exec is a probe's exec action.
type Exec struct {
	// Command is the program and its arguments, with $(NAME) already replaced.
	Command []string
}

// HTTP is a probe's httpGet action.
type HTTP struct {
	Path    string              // with the query; never empty
	Port    string              // a number from 1 to 65535, or the name of one of the target's ports
	Host    string              // empty for the target's address
	Scheme  string              // "HTTP" or "HTTPS"; the kubelet verifies no certificate (K90)
	Headers map[string][]string // by canonical name; an empty User-Agent or Accept omits the header (K87)
}

// TCP is a probe's tcpSocket action.
type TCP struct {
	Port string // a number from 1 to 65535, or the name of one of the target's ports
	Host string // empty for the target's address
}

// GRPC is a probe's grpc action.
type GRPC struct {
	Port    string // a number from 1 to 65535
	Service string // as in grpc.health.v1.HealthCheckRequest; may be empty
}

// Handlers has a constructor for each action. A pod with a probe whose constructor is
// nil is rejected. Constructors are called by the goroutines that call functions of
// this package.
type Handlers struct {
	Exec func(Exec) (probe.Handler, error)
	HTTP func(HTTP) (probe.Handler, error)
	TCP  func(TCP) (probe.Handler, error)
	GRPC func(GRPC) (probe.Handler, error)
}

// Action is what a probe does: exactly one field is set.
type Action struct {
	Exec *Exec
	HTTP *HTTP
	TCP  *TCP
	GRPC *GRPC
}

// Name returns the name of the action's handler in metrics and in the API:
// "exec", "http", "tcp" or "grpc".
func (a Action) Name() string {
	switch {
	case a.Exec != nil:
		return "exec"
	case a.HTTP != nil:
		return "http"
	case a.TCP != nil:
		return "tcp"
	case a.GRPC != nil:
		return "grpc"
	}
	return ""
}

// revision returns a hash of the action: headers and arguments may be secret.
func (a Action) revision() string {
	text, err := json.Marshal(a) // deterministic: map keys are sorted
	if err != nil {
		return ""
	}
	sum := sha256.Sum256(text)
	return hex.EncodeToString(sum[:])
}

// Make returns the handler of an action.
func (h Handlers) Make(a Action) (probe.Handler, error) {
	switch {
	case a.Exec != nil && h.Exec != nil:
		return h.Exec(*a.Exec)
	case a.HTTP != nil && h.HTTP != nil:
		return h.HTTP(*a.HTTP)
	case a.TCP != nil && h.TCP != nil:
		return h.TCP(*a.TCP)
	case a.GRPC != nil && h.GRPC != nil:
		return h.GRPC(*a.GRPC)
	}
	return nil, fmt.Errorf("no handler for %s probes", a.Name())
}
