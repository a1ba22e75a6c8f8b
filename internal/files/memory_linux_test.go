package files

import (
	"os"
	"testing"
)

func TestAFileInMemoryIsPrivate(t *testing.T) {
	f, err := NewMemory("sonde-test")
	if err != nil {
		t.Fatal(err)
	}
	defer f.Close()
	if _, err := f.WriteString("content"); err != nil {
		t.Error(err)
	}
	if _, err := os.Stat(f.Name()); !os.IsNotExist(err) {
		t.Errorf("it has a path: %v", err)
	}
	if info, err := f.Stat(); err != nil || info.Size() != 7 || !info.Mode().IsRegular() {
		t.Errorf("got %v, %v", info, err)
	}
}
