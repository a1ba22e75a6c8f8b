package api

import (
	"encoding/json"
	"errors"
	"fmt"
	"net/http"
	"strings"
	"time"

	"github.com/sonde-probe/sonde/probe"
)

// errorBody is the body of a response whose status is not 200.
type errorBody struct {
	Error Error `json:"error"`
}

// errorf returns the error of a request with the status of its response.
func errorf(status int, format string, a ...any) *Error {
	return &Error{Status: status, Message: probe.CleanText(fmt.Sprintf(format, a...), probe.MaxDetail)}
}

// answer serves a request: it returns the body of the response, which has status 200 unless the body is a rejected. A
// nil body means that the client has disconnected. An error that is not an *Error is one of the request.
type answer func(w http.ResponseWriter, r *http.Request) (body any, err error)

// ServeHTTP implements http.Handler.
func (a answer) ServeHTTP(w http.ResponseWriter, r *http.Request) {
	body, err := a(w, r)
	switch reload, isRejected := body.(rejected); {
	case err != nil:
		respondError(w, err)
	case isRejected:
		write(w, reload.Error.Status, body)
	case body != nil:
		write(w, http.StatusOK, body)
	}
}

// respondError writes an error as JSON, with status 400 unless it has one.
func respondError(w http.ResponseWriter, err error) {
	failed, hasStatus := errors.AsType[*Error](err)
	if !hasStatus {
		failed = errorf(http.StatusBadRequest, "%v", err)
	}
	write(w, failed.Status, errorBody{*failed})
}

func write(w http.ResponseWriter, status int, v any) {
	body, err := json.Marshal(v)
	if err != nil { // unreachable: all types of this package can be marshalled
		http.Error(w, err.Error(), http.StatusInternalServerError)
		return
	}
	w.Header().Set("Content-Type", "application/json")
	w.WriteHeader(status)
	w.Write(append(body, '\n')) // fails only if the client has disconnected
}

// ready serves /readyz: it responds as health does, and names the name servers and container runtimes that do not
// respond. These do not make the engine unready, since other verdicts can be trusted.
func (c *Config) ready(http.ResponseWriter, *http.Request) (any, error) {
	var details []string
	for _, n := range c.silentNameServers() {
		details = append(details, n.String())
	}
	if c.Runtimes != nil {
		for _, r := range c.Runtimes() {
			if r.Error != "" {
				details = append(details, fmt.Sprintf("since %s: %s", r.Since.UTC().Format(time.RFC3339), r.Error))
			}
		}
	}
	body := map[string]string{"status": "ok"}
	if len(details) > 0 {
		body["detail"] = strings.Join(details, "; ")
	}
	if c.Ready != nil {
		if err := c.Ready(); err != nil {
			return nil, errorf(http.StatusServiceUnavailable, "%s", strings.Join(append([]string{err.Error()}, details...), "; "))
		}
	}
	return body, nil
}

// health returns status 200, or 503 with the error of check.
func health(check func() error) answer {
	return func(http.ResponseWriter, *http.Request) (any, error) {
		if check != nil {
			if err := check(); err != nil {
				return nil, errorf(http.StatusServiceUnavailable, "%v", err)
			}
		}
		return map[string]string{"status": "ok"}, nil
	}
}
