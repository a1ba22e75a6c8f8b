package guard

import (
	"encoding/json"
	"errors"
	"io"
	"os"
	"path/filepath"
	"syscall"
	"testing"
	"time"
)

func TestDescriptionsAreBoundedAndTheLatestIsTheLast(t *testing.T) {
	path := filepath.Join(t.TempDir(), "description")
	f, err := os.OpenFile(path, os.O_WRONLY|os.O_APPEND|os.O_CREATE, 0o600)
	if err != nil {
		t.Fatal(err)
	}
	defer f.Close()
	a := &adoption{adopt: Adopt{Target: "web"}, description: f}
	for n := range time.Duration(1000) {
		a.setStop(Order{Grace: n + 1, StopSignal: syscall.SIGINT}, Report{ID: "1"})
		if n%10 != 0 && n < 990 {
			continue
		}
		read, err := os.Open(path)
		if err != nil {
			t.Fatal(err)
		}
		var d Description
		for decoder := json.NewDecoder(read); err == nil; {
			err = decoder.Decode(&d)
		}
		info, statErr := read.Stat()
		if statErr != nil || info.Size() > maxDescriptions || !errors.Is(err, io.EOF) || d.Grace != n+1 || d.StopSignal != syscall.SIGINT || d.ID != "1" {
			t.Fatalf("after %d changes: %+v, %v, %v", n+1, d, info, err)
		}
		_ = read.Close()
	}
}
