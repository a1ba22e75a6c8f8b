//go:build unix

package files

import (
	"errors"
	"os"
	"path/filepath"
	"strings"
	"syscall"
	"testing"
	"time"
)

func TestAPipeIsReadUntilItsWriterEndsOrTheTimeIsOver(t *testing.T) {
	name := filepath.Join(t.TempDir(), "pipe")
	if err := syscall.Mkfifo(name, 0o600); err != nil {
		t.Fatal(err)
	}
	if _, err := ReadRegular(name, 5); err == nil || !strings.Contains(err.Error(), "is not a regular file") {
		t.Errorf("got %v", err)
	}
	got := make(chan string, 1)
	go func() {
		b, err := Read(name, 20)
		if err != nil {
			b = []byte(err.Error())
		}
		got <- string(b)
	}()
	w, err := os.OpenFile(name, os.O_WRONLY, 0) // waits for the reader
	if err != nil {
		t.Fatal(err)
	}
	for _, part := range []string{"from ", "a pipe"} {
		if _, err := w.WriteString(part); err != nil {
			t.Fatal(err)
		}
	}
	w.Close()
	if text := <-got; text != "from a pipe" {
		t.Errorf("got %q", text)
	}

	f, _, err := open(name)
	if err != nil {
		t.Fatal(err)
	}
	defer f.Close()
	if _, err := ReadFrom(&pipe{f, name, time.Now().Add(time.Millisecond)}, name, 5); err == nil || !strings.Contains(err.Error(), "did not end within 30s") {
		t.Errorf("a pipe without a writer: got %v", err)
	}
}

func TestADeviceWithoutAnEndIsTooLarge(t *testing.T) {
	if _, err := Read("/dev/zero", 1000); !errors.Is(err, ErrTooLarge) {
		t.Errorf("got %v", err)
	}
	if got, err := Read("/dev/null", 1000); err != nil || len(got) != 0 {
		t.Errorf("an empty device: got %q, %v", got, err)
	}
}
