package daemon

import (
	"slices"
	"testing"
	"testing/synctest"
	"time"
)

// A disk that hangs holds up the first text, and nothing is written beside it.
func TestADiskThatHangsDoesNotHoldUpTheEngine(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		disk, written := make(chan struct{}), []string{}
		f := newKeptFile()
		f.write = func(name string, text []byte) error {
			<-disk
			written = append(written, name+"="+string(text))
			return nil
		}
		for _, text := range []string{"first", "second"} {
			began := time.Now()
			if err := f.replace("file", []byte(text)); err == nil || err.Error() != "the disk of file does not respond" {
				t.Errorf("got %v", err)
			}
			if took := time.Since(began); took != diskTimeout {
				t.Errorf("the engine waits %v for the disk", took)
			}
		}
		close(disk)
		synctest.Wait()
		if err := f.replace("file", []byte("third")); err != nil || !slices.Equal(written, []string{"file=first", "file=third"}) {
			t.Errorf("%v: %q were written", err, written)
		}
	})
}
