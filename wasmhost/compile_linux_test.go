package wasmhost_test

import (
	"context"
	"fmt"
	"path/filepath"
	"strings"
	"syscall"
	"testing"

	"github.com/sonde-probe/sonde/wasmhost"
)

// manyValues is a module within the bounds of package meter whose compiler needs 100 MiB: each
// of its locals may get a new value at the start of each loop.
func manyValues() []byte {
	const locals, loops = 1700, 200
	var names, reads strings.Builder
	for n := range locals {
		fmt.Fprintf(&names, "(local $%d i64) ", n)
		fmt.Fprintf(&reads, "local.get %d drop ", n)
	}
	return wat(`(func $run (result i32) %s %s %s %s i32.const 1)`, names.String(),
		strings.Repeat("loop ", loops), reads.String(), strings.Repeat("end ", loops))
}

func TestACachedModuleNeedsNoChild(t *testing.T) {
	c := wasmhost.Config{Module: wat(idle), CacheDir: filepath.Join(t.TempDir(), "cache")}
	load(t, c)
	before := childFaults(t)
	if p := load(t, c); !p.Stats().CacheHit || childFaults(t) != before {
		t.Errorf("a child ran: page faults of children were %d, and are %d", before, childFaults(t))
	}
}

// childFaults returns how many pages the children of this process have used that have ended.
func childFaults(t *testing.T) int64 {
	var usage syscall.Rusage
	if err := syscall.Getrusage(syscall.RUSAGE_CHILDREN, &usage); err != nil {
		t.Fatal(err)
	}
	return usage.Minflt
}

func TestClosingAPluginCancelsItsCompilation(t *testing.T) {
	p, err := wasmhost.Load(wasmhost.Config{Module: manyValues(), AllowUnpinned: true})
	if err != nil {
		t.Fatal(err)
	}
	if err := p.Close(context.Background()); err != nil {
		t.Fatal(err)
	}
	if err := p.Wait(t.Context()); err == nil || !strings.Contains(err.Error(), "plugin was unloaded") {
		t.Errorf("got %v", err)
	}
}
