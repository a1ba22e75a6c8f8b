package httpapi

import (
	"encoding/json"
	"fmt"
	"net/http"

	"github.com/sonde-probe/sonde/probe"
)

// failure is the body of an answer that is not 200.
type failure struct {
	Error Error `json:"error"`
}

// answer writes v as JSON with status 200.
func answer(w http.ResponseWriter, v any) { write(w, http.StatusOK, v) }

// refuse writes an Error.
func refuse(w http.ResponseWriter, status int, format string, a ...any) {
	message := probe.CleanText(fmt.Sprintf(format, a...), probe.MaxDetail)
	write(w, status, failure{Error{Status: status, Message: message}})
}

func write(w http.ResponseWriter, status int, v any) {
	body, err := json.Marshal(v)
	if err != nil { // our own types can all be written
		http.Error(w, err.Error(), http.StatusInternalServerError)
		return
	}
	w.Header().Set("Content-Type", "application/json")
	w.WriteHeader(status)
	w.Write(append(body, '\n')) // an error here is the caller's connection
}

// health answers 200, or 503 with what is wrong.
func health(wrong func() error) http.HandlerFunc {
	return func(w http.ResponseWriter, _ *http.Request) {
		if wrong != nil {
			if err := wrong(); err != nil {
				refuse(w, http.StatusServiceUnavailable, "%v", err)
				return
			}
		}
		answer(w, map[string]string{"status": "ok"})
	}
}
