package cli

import (
	"bytes"
	"errors"
	"fmt"
	"log/slog"
	"strings"
	"testing"
	"testing/synctest"
	"time"
)

// gate is a writer that blocks until it is opened.
type gate struct {
	open chan struct{}
	text bytes.Buffer
}

func (g *gate) Write(p []byte) (int, error) {
	<-g.open
	return g.text.Write(p)
}

func TestALogThatIsNotReadBlocksNobodyAndItsLossIsCounted(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		reader := &gate{open: make(chan struct{})}
		q := NewLogQueue(reader)
		log := q.Logger("text", &slog.LevelVar{})
		const records, text = 20_000, 1000
		for i := range records {
			log.Info(strings.Repeat("x", text), "number", i)
		}
		dropped := q.Dropped()
		if dropped == 0 || dropped == records {
			t.Fatalf("%d of %d records were dropped", dropped, records)
		}
		close(reader.open)
		synctest.Wait()
		log.Info("later")
		q.Close(time.Minute)
		lines := strings.Count(reader.text.String(), "\n")
		if want := records - int(dropped) + 2; lines != want {
			t.Errorf("the log has %d lines, want %d", lines, want)
		}
		if note := fmt.Sprintf("could not be written\" dropped=%d\n", dropped); strings.Count(reader.text.String(), note) != 1 {
			t.Errorf("the log does not have %q once", note)
		}
		if !strings.Contains(reader.text.String(), "msg=later") || q.Dropped() != dropped {
			t.Errorf("records were dropped after the reader was back: %d", q.Dropped()-dropped)
		}
	})
}

func TestClosingALogQueueIsBoundedInTime(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		reader := &gate{open: make(chan struct{})}
		q := NewLogQueue(reader)
		q.Logger("json", &slog.LevelVar{}).Info("unread")
		began := time.Now()
		q.Close(time.Second)
		if took := time.Since(began); took != time.Second {
			t.Errorf("Close took %v", took)
		}
		close(reader.open) // ends the goroutine
	})
}

// failing is a writer that fails halfway through each text until it is repaired.
type failing struct {
	repaired bool
	text     bytes.Buffer
}

func (f *failing) Write(p []byte) (int, error) {
	if f.repaired {
		return f.text.Write(p)
	}
	return bytes.IndexByte(p, '\n') / 2, errors.New("no space left on device")
}

// complaining is a writer that writes the whole text but returns an error.
type complaining struct{ text bytes.Buffer }

func (c *complaining) Write(p []byte) (int, error) {
	n, _ := c.text.Write(p)
	return n, errors.New("quota exceeded")
}

func TestRecordsThatWereWrittenInSpiteOfAnErrorAreNotDropped(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		disk := &complaining{}
		q := NewLogQueue(disk)
		log := q.Logger("text", &slog.LevelVar{})
		log.Info(strings.Repeat("x", maxQueuedLog)) // does not fit
		for range 2 {
			log.Info("written") // the first one with a note
			synctest.Wait()
		}
		q.Close(time.Minute)
		if got := disk.text.String(); strings.Count(got, "msg=written") != 2 || strings.Count(got, "dropped=") != 1 || q.Dropped() != 1 {
			t.Errorf("%d dropped, and the log is %s", q.Dropped(), got)
		}
	})
}

func TestRecordsThatCannotBeWrittenAreCounted(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		disk := &failing{}
		q := NewLogQueue(disk)
		log := q.Logger("text", &slog.LevelVar{})
		for range 3 {
			log.Info("lost")
			synctest.Wait() // one batch each, the later ones with a note
		}
		if q.Dropped() != 3 {
			t.Errorf("dropped %d records, want 3", q.Dropped())
		}
		disk.repaired = true
		log.Info("written")
		q.Close(time.Minute)
		if got := disk.text.String(); strings.Contains(got, "lost") || !strings.Contains(got, "dropped=3\n") || q.Dropped() != 3 {
			t.Errorf("%d dropped, and the log is %s", q.Dropped(), got)
		}
	})
}
