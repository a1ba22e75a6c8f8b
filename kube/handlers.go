package kube

import (
	"crypto/sha256"
	"encoding/hex"
	"encoding/json"
	"fmt"
	"time"

	"github.com/sonde-probe/sonde/probe"
)

// Action is the action of a probe or of a preStop hook.
type Action struct {
	// Handler is the name of the action's handler in metrics and in the API: "exec", "http", "tcp" or "grpc". A preStop
	// hook may also have "sleep".
	Handler string

	Command []string            // of exec: the program and its arguments; in a probe, $(NAME) is already replaced
	Path    string              // of http, with the query; never empty
	Scheme  string              // of http: "HTTP" or "HTTPS"; the kubelet verifies no certificate (K90)
	Headers map[string][]string // of http, by canonical name; an empty User-Agent or Accept omits the header (K87)
	Port    string              // a number from 1 to 65535 or, except for grpc, the name of one of the target's ports
	Host    string              // of http and tcp: empty for the target's address
	Service string              // of grpc, as in grpc.health.v1.HealthCheckRequest; may be empty
	Sleep   time.Duration       // of sleep
}

// Handlers maps each Action.Handler to its constructor. A pod with a probe whose constructor is missing is rejected.
// Constructors run in the goroutines that call this package.
type Handlers map[string]func(Action) (probe.Handler, error)

// revision returns a hash of the action. A hash is used because headers and arguments may be secret.
func (a Action) revision() string {
	text, err := json.Marshal(a) // deterministic: map keys are sorted
	if err != nil {
		return ""
	}
	sum := sha256.Sum256(text)
	return hex.EncodeToString(sum[:])
}

// Make calls the constructor of an action's handler.
func (h Handlers) Make(a Action) (probe.Handler, error) {
	if build := h[a.Handler]; build != nil {
		return build(a)
	}
	return nil, fmt.Errorf("no handler for %s probes", a.Handler)
}
