package api

import (
	"encoding/json"
	"fmt"
	"net/http"

	"github.com/sonde-probe/sonde/probe"
)

// errorBody is the body of a response whose status is not 200.
type errorBody struct {
	Error Error `json:"error"`
}

// respond writes v as JSON with status 200.
func respond(w http.ResponseWriter, v any) { write(w, http.StatusOK, v) }

// respondError writes an Error.
func respondError(w http.ResponseWriter, status int, format string, a ...any) {
	message := probe.CleanText(fmt.Sprintf(format, a...), probe.MaxDetail)
	write(w, status, errorBody{Error{Status: status, Message: message}})
}

func write(w http.ResponseWriter, status int, v any) {
	body, err := json.Marshal(v)
	if err != nil { // unreachable: all types of this package can be marshalled
		http.Error(w, err.Error(), http.StatusInternalServerError)
		return
	}
	w.Header().Set("Content-Type", "application/json")
	w.WriteHeader(status)
	w.Write(append(body, '\n')) // an error means that the client has gone
}

// health serves status 200, or 503 with the error of check.
func health(check func() error) http.HandlerFunc {
	return func(w http.ResponseWriter, _ *http.Request) {
		if check != nil {
			if err := check(); err != nil {
				respondError(w, http.StatusServiceUnavailable, "%v", err)
				return
			}
		}
		respond(w, map[string]string{"status": "ok"})
	}
}
