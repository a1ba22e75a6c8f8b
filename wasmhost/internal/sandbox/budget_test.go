package sandbox

import (
	"context"
	"errors"
	"testing"

	"github.com/sonde-probe/sonde/wasmhost/internal/module"
)

func TestAPluginLeavesTheSharesOfOthers(t *testing.T) {
	b := budget{limit: 1000}
	greedy, late := b.open(), b.open() // a share is 250
	for b.take(greedy, 10) {
	}
	if greedy.used != 750 {
		t.Errorf("one of two plugins uses %d of 1000", greedy.used)
	}
	if !b.take(late, 250) || b.take(late, 1) {
		t.Errorf("the other one uses %d", late.used)
	}
	alone := budget{limit: 1000}
	only := alone.open()
	if !alone.take(only, 1000) || alone.take(only, 1) {
		t.Errorf("the only plugin uses %d", only.used)
	}
}

func TestTheSumIsNeverExceeded(t *testing.T) {
	b := budget{limit: 1000}
	first := b.open()
	b.takeInstance(first, 900)
	second := b.open() // its share is 250, of which 100 are left
	if b.take(second, 101) || !b.take(second, 100) {
		t.Errorf("the second plugin uses %d", second.used)
	}
	if !b.owes(first) || b.owes(second) {
		t.Error("the first plugin does not know that the second one waits for its share")
	}
	b.release(first, 900)
	if b.owes(first) || b.used != 100 {
		t.Errorf("%d are used", b.used)
	}
}

func TestTheFirstInstanceOfAPluginAlwaysStarts(t *testing.T) {
	b := budget{limit: 100}
	a := b.open()
	if b.room(a, 500) != 1 || !b.takeInstance(a, 500) || b.takeInstance(a, 1) || b.room(a, 1) != 0 {
		t.Errorf("it uses %d", a.used)
	}
	b.release(a, 500)
	b.close(a)
	if b.used != 0 || len(b.accounts) != 0 {
		t.Errorf("%d are used by %d plugins", b.used, len(b.accounts))
	}
}

// limitMemory sets the budget of a test.
func limitMemory(t *testing.T, limit int64) {
	before := totalMemory.limit
	SetTotalMemory(limit)
	t.Cleanup(func() { SetTotalMemory(before) })
}

// growing is a module of one page whose sonde_run grows its memory by a page, and returns
// how many pages it had before.
const growing = "\x00asm\x01\x00\x00\x00" +
	"\x01\x05\x01\x60\x00\x01\x7f" +
	"\x03\x02\x01\x00" +
	"\x05\x03\x01\x00\x01" +
	"\x07\x25\x03\x06memory\x02\x00\x0csonde_abi_v1\x00\x00\x09sonde_run\x00\x00" +
	"\x0a\x08\x01\x06\x00\x41\x01\x40\x00\x0b"

func TestGuestsGrowWithinTheBudget(t *testing.T) {
	i := startModule(t, growing)
	limitMemory(t, i.sandbox.initialMemory()+4*module.PageSize)
	refused := false
	for range 100 {
		r := i.Run(context.Background(), Attempt{State: i.sandbox.NewState()})
		if refused = r.Value == -1; refused != (r.NoMemory != nil) {
			t.Fatalf("got %+v", r)
		}
		if refused {
			break
		}
	}
	if total := int64(i.module.Memory().Size()) + instanceOverhead; !refused || total != totalMemory.limit || i.used != total {
		t.Errorf("refused: %v, it has %d bytes, %d are counted, %d are allowed", refused, total, i.used, totalMemory.limit)
	}
	if _, err := i.sandbox.Start(context.Background()); !errors.Is(err, ErrNoMemory) || i.sandbox.Room() != 0 {
		t.Errorf("a second instance: %v", err)
	}
	i.Close()
	if totalMemory.used != 0 {
		t.Errorf("%d bytes are counted without an instance", totalMemory.used)
	}
}

// recursing is a module of one page whose sonde_run calls itself for ever.
const recursing = "\x00asm\x01\x00\x00\x00" +
	"\x01\x05\x01\x60\x00\x01\x7f" +
	"\x03\x02\x01\x00" +
	"\x05\x03\x01\x00\x01" +
	"\x07\x25\x03\x06memory\x02\x00\x0csonde_abi_v1\x00\x00\x09sonde_run\x00\x00" +
	"\x0a\x09\x01\x07\x00\x10\x00\x41\x01\x6a\x0b" // code: call 0, i32.const 1, i32.add

// wazero itself allows a stack of more than 100 MB. That its size can be read at all is
// what this test is for, too.
func TestTheStackIsBounded(t *testing.T) {
	i := startModule(t, recursing)
	r := i.Run(context.Background(), Attempt{State: i.sandbox.NewState()})
	size := stackSize(i.run)
	if r.Ending != StackOverflow || size > 4*maxStack {
		t.Errorf("got %+v with a stack of %d MB", r, size>>20)
	}
	if size == 0 {
		t.Skip("there is no compiler for this processor")
	}
	if !errors.Is(r.Err, errStackOverflow) || i.used <= i.sandbox.initialMemory() || !i.Spent() {
		t.Errorf("%d bytes are counted, %d at the start: %v", i.used, i.sandbox.initialMemory(), r.Err)
	}
	i.Close()
	other := startModule(t, recursing)
	limitMemory(t, other.used+1<<20)
	if r := other.Run(context.Background(), Attempt{State: other.sandbox.NewState()}); r.Ending != OutOfMemory || r.NoMemory == nil {
		t.Errorf("without memory: got %+v", r)
	}
	other.Close()
}
