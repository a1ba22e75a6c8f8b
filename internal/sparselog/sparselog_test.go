package sparselog_test

import (
	"bytes"
	"log/slog"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	"github.com/sonde-probe/sonde/internal/sparselog"
)

func TestAMessageIsLoggedOnceInAnInterval(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		var text bytes.Buffer
		log := sparselog.New(slog.New(slog.NewTextHandler(&text, nil)))
		for range 3 * 60 {
			log.Warn("the store is away", "error", "no route")
			log.Error("the disk is full")
			time.Sleep(sparselog.Interval / 60)
		}
		for message, level := range map[string]string{"the store is away": "WARN", "the disk is full": "ERROR"} {
			if n := strings.Count(text.String(), `level=`+level+` msg="`+message+`"`); n != 3 {
				t.Errorf("%q is logged %d times in three intervals, want 3:\n%s", message, n, text.String())
			}
		}
		if !strings.Contains(text.String(), `error="no route"`) {
			t.Errorf("the log lacks what a message was logged with:\n%s", text.String())
		}
	})
}
