package status

import (
	"net/http"
	"net/http/httptest"
	"sync/atomic"
	"testing"
	"time"

	"github.com/sonde-probe/sonde/api"
	"github.com/sonde-probe/sonde/tests/tier"
)

// A finished run does not wait until a hanging engine has received its start beat.
func TestTheEndOfARunDoesNotWaitForItsBegin(t *testing.T) {
	tier.Slow(t)
	var begun, ended atomic.Int32
	engine := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		w.Header().Set(api.HeaderEngine, "sonde")
		if r.URL.Query().Get("status") == "start" {
			begun.Add(1)
			<-r.Context().Done()
			return
		}
		ended.Add(1)
		_, _ = w.Write([]byte("{}"))
	}))
	defer engine.Close()
	t.Setenv(beatTokenVariable, "correct-horse-battery")
	for range 5 {
		begun.Store(0)
		ended.Store(0)
		began := time.Now()
		c := beatCommand()
		c.SetArgs([]string{"job", "--address", engine.URL, "--", "true"})
		if err := c.Execute(); err != nil {
			t.Fatal(err)
		}
		if begun.Load() <= 1 && ended.Load() == 1 {
			return
		}
		if time.Since(began) < beatTimeout { // a longer run retries its beat
			break
		}
	}
	t.Errorf("the engine was told %d times that the run begins, and %d times that it has ended", begun.Load(), ended.Load())
}
