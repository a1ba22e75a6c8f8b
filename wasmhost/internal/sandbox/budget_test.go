package sandbox

import (
	"bytes"
	"context"
	"errors"
	"net"
	"net/netip"
	"runtime"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/tetratelabs/wazero/api"

	"github.com/sonde-probe/sonde/probe"
	"github.com/sonde-probe/sonde/tests/testsync"
	"github.com/sonde-probe/sonde/tests/tier"
	"github.com/sonde-probe/sonde/tests/wattest"
	"github.com/sonde-probe/sonde/wasmhost/abi"
	"github.com/sonde-probe/sonde/wasmhost/internal/grant"
	"github.com/sonde-probe/sonde/wasmhost/internal/module"
	"github.com/sonde-probe/sonde/wasmhost/internal/settings"
)

// noneIdle is the closeOldest of plugins without idle instances, and noSlot the releaseSlot of
// calls without a slot.
func noneIdle() bool { return false }
func noSlot()        {}

func TestAPluginLeavesTheSharesOfOthers(t *testing.T) {
	b := budget{limit: 1000}
	greedy, late := b.open(noneIdle), b.open(noneIdle) // a share is 250
	for b.reserve(greedy, 10, noSlot) {
	}
	if greedy.used != 750 {
		t.Errorf("one of two plugins uses %d of 1000", greedy.used)
	}
	if !b.reserve(late, 250, noSlot) || b.reserve(late, 1, noSlot) {
		t.Errorf("the other one uses %d", late.used)
	}
	alone := budget{limit: 1000}
	only := alone.open(noneIdle)
	if !alone.reserve(only, 1000, noSlot) || alone.reserve(only, 1, noSlot) {
		t.Errorf("the only plugin uses %d", only.used)
	}
}

func TestAPluginThatWaitsForItsShareGetsWhatOthersReturn(t *testing.T) {
	b := budget{limit: 1000}
	first := b.open(noneIdle)
	b.reserveInstance(first, 900)
	second := b.open(noneIdle) // its share is 250, of which 100 are left
	if b.reserve(second, 101, noSlot) || !b.reserve(second, 100, noSlot) || b.reserve(second, 1, noSlot) {
		t.Errorf("the second plugin uses %d", second.used)
	}
	if !b.owes(first) || b.owes(second) {
		t.Error("the first plugin does not know that the second one waits for its share")
	}
	b.releaseInstance(first, 900)
	if b.owes(first) || b.used != 100 {
		t.Errorf("%d are used", b.used)
	}
}

// TestTheSumIsNeverExceeded starts as many instances of two plugins as possible. Their calls open
// as many connections as possible, and hold some. The images, and one instance of each plugin, may
// exceed the limit.
func TestTheSumIsNeverExceeded(t *testing.T) {
	server, err := net.ListenPacket("udp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	defer server.Close()
	grants, err := grant.Parse([]string{"udp://127.0.0.1:*", "tcp://127.0.0.1:*"}, nil, nil)
	if err != nil {
		t.Fatal(err)
	}
	listener, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	defer listener.Close()
	const limit = 4 << 20
	before := totalMemory.used
	first, second := startModule(t, smallest), startModule(t, growing)
	exceptions := totalMemory.used - before
	limitMemory(t, before+limit)
	most := int64(0)
	observe := func() { most = max(most, totalMemory.used-before) }
	var all []*Instance
	var calls []*call
	for _, s := range []*Sandbox{first.sandbox, second.sandbox} {
		s.config.Grants, s.config.Limits.Dials = grants, 1000
		for i, err := s.Start(t.Context()); err == nil; i, err = s.Start(t.Context()) {
			all = append(all, i)
			c := endedCall(i)
			c.finish()
			c.life.ctx, c.life.pastDeadline, c.life.stopped = t.Context(), make(chan struct{}), make(chan struct{})
			calls = append(calls, c)
			for _, d := range []grant.Dest{
				{Network: "tcp", Host: "127.0.0.1", Port: netip.MustParseAddrPort(listener.Addr().String()).Port()},
				{Network: "udp", Host: "127.0.0.1", Port: netip.MustParseAddrPort(server.LocalAddr().String()).Port()},
				{Network: "tcp", Host: "127.0.0.1", Port: netip.MustParseAddrPort(listener.Addr().String()).Port()},
			} {
				if s, errno := c.network.connect(t.Context(), d, ""); errno == abi.OK {
					c.open.add(s)
				} else if c.last.Reason != probe.ReasonResources {
					t.Fatalf("%+v", c.last)
				}
				observe()
			}
			c.memory.WriteByte(0, 'k')
			c.network.hold(args{abi.FirstFD, 0, 1})
			observe()
			i.Run(t.Context(), Attempt{State: i.sandbox.own.NewState()})
			observe()
		}
	}
	if len(all) < 10 || most > limit+exceptions || most < limit*9/10 {
		t.Errorf("%d instances and their connections took %d bytes, %d are allowed", len(all), most, limit+exceptions)
	}
	for _, c := range calls {
		c.finish()
		c.input.State.Close()
	}
	for _, i := range append(all, first, second) {
		i.Close()
	}
	first.sandbox.Close()
	second.sandbox.Close()
	if totalMemory.used != before {
		t.Errorf("%d bytes are counted in the end", totalMemory.used-before)
	}
}

func TestTheFirstInstanceOfAPluginAlwaysStarts(t *testing.T) {
	b := budget{limit: 100}
	a := b.open(noneIdle)
	if b.room(a, 500) != 1 || !b.reserveInstance(a, 500) || b.reserveInstance(a, 1) || b.room(a, 1) != 0 {
		t.Errorf("it uses %d", a.used)
	}
	b.releaseInstance(a, 500)
	b.close(a)
	if b.used != 0 || len(b.accounts) != 0 {
		t.Errorf("%d are used by %d plugins", b.used, len(b.accounts))
	}
}

// limitMemory sets the memory limit for the duration of a test.
func limitMemory(t *testing.T, limit int64) {
	before := totalMemory.limit
	SetTotalMemory(limit)
	t.Cleanup(func() { SetTotalMemory(before) })
}

// growing is a module of one page whose sonde_run grows the memory by one page and returns the
// previous number of pages.
const growing = "\x00asm\x01\x00\x00\x00" +
	"\x01\x05\x01\x60\x00\x01\x7f" +
	"\x03\x02\x01\x00" +
	"\x05\x03\x01\x00\x01" +
	"\x07\x25\x03\x06memory\x02\x00\x0csonde_abi_v1\x00\x00\x09sonde_run\x00\x00" +
	"\x0a\x08\x01\x06\x00\x41\x01\x40\x00\x0b"

func TestGuestsGrowWithinTheBudget(t *testing.T) {
	i := startModule(t, growing)
	image := i.sandbox.image.Load().Size()
	limitMemory(t, image+i.sandbox.initialMemory()+4*module.PageSize)
	refused := false
	for range 100 {
		r := i.Run(context.Background(), Attempt{State: i.sandbox.own.NewState()})
		if refused = r.Value == -1; refused != (r.NoMemory != nil) {
			t.Fatalf("got %+v", r)
		}
		if refused {
			break
		}
	}
	if total := int64(i.module.Memory().Size()) + instanceOverhead + connSize; !refused || total+image != totalMemory.limit || i.used != total {
		t.Errorf("refused: %v, it has %d bytes, %d are counted, %d are allowed", refused, total, i.used, totalMemory.limit)
	}
	if _, err := i.sandbox.Start(context.Background()); !errors.Is(err, ErrNoMemory) || i.sandbox.Room() != 0 {
		t.Errorf("a second instance: %v", err)
	}
	i.Close()
	if used := totalMemory.usedBy(i.sandbox.account); used != image {
		t.Errorf("%d bytes are counted without an instance, its image has %d", used, image)
	}
	before := totalMemory.used
	if i.sandbox.Close(); totalMemory.used != before-image || totalMemory.usedBy(i.sandbox.account) != 0 {
		t.Errorf("%d bytes are counted of a closed plugin", totalMemory.usedBy(i.sandbox.account))
	}
}

// recursing is a module of one page whose sonde_run recurses without end.
const recursing = "\x00asm\x01\x00\x00\x00" +
	"\x01\x05\x01\x60\x00\x01\x7f" +
	"\x03\x02\x01\x00" +
	"\x05\x03\x01\x00\x01" +
	"\x07\x25\x03\x06memory\x02\x00\x0csonde_abi_v1\x00\x00\x09sonde_run\x00\x00" +
	"\x0a\x09\x01\x07\x00\x10\x00\x41\x01\x6a\x0b" // code: call 0, i32.const 1, i32.add

// wazero itself allows a stack of more than 100 MB. This test also verifies that the size of a
// stack can be read.
func TestTheStackIsBounded(t *testing.T) {
	i := startModule(t, recursing)
	r := i.Run(context.Background(), Attempt{State: i.sandbox.own.NewState()})
	size := i.run.stackSize()
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
	limitMemory(t, totalMemory.usedBy(i.sandbox.account)+totalMemory.usedBy(other.sandbox.account)+1<<20)
	if r := other.Run(context.Background(), Attempt{State: other.sandbox.own.NewState()}); r.Ending != OutOfMemory || r.NoMemory == nil {
		t.Errorf("without memory: got %+v", r)
	}
	other.Close()
}

// hostile returns a module of one page with the exports that a host requires.
func hostile(wat string) string {
	return string(wattest.Assemble(wat + ` (memory 1) (export "memory" (memory 0)) (export "sonde_abi_v1" (func $run))
		(export "sonde_run" (func $run)) (export "sonde_configure" (func $configure))
		(func $configure (result i32) i32.const 0)`))
}

// TestWhatTheRuntimeTakesForAnInstanceIsCounted measures the heap: the runtime allocates tables,
// references, globals and segments for each instance.
func TestWhatTheRuntimeTakesForAnInstanceIsCounted(t *testing.T) {
	tier.Slow(t)
	const many = 10
	first := startModule(t, hostile(`(table 65536) (func $run (result i32) i32.const 1)
		(elem 0 `+strings.Repeat("$run ", 60_000)+`)`+strings.Repeat(`(global $g (mut i32) 0) `, 4000)))
	heap := func() int64 {
		var stats runtime.MemStats
		runtime.GC()
		runtime.ReadMemStats(&stats)
		return int64(stats.HeapAlloc)
	}
	before := heap()
	var all []*Instance
	for range many {
		i, err := first.sandbox.Start(t.Context())
		if err != nil {
			t.Fatal(err)
		}
		all = append(all, i)
	}
	took := (heap() - before) / many
	counted := first.used - first.sandbox.declaredMemory()
	if took > counted || took < 10*instanceOverhead {
		t.Errorf("an instance takes %d KB of the heap, %d KB are counted", took>>10, counted>>10)
	}
	for _, i := range append(all, first) {
		i.Close()
	}
}

// Each function of an instance keeps its own stack.
func TestTheStackOfEachFunctionIsCounted(t *testing.T) {
	deep := `(func $deep (param $n i32) local.get $n if local.get $n i32.const 1 i32.sub call $deep end)`
	i := startModule(t, string(wattest.Assemble(deep+` (memory 1) (func $run (result i32) i32.const 10000 call $deep i32.const 1)
		(export "memory" (memory 0)) (export "sonde_abi_v1" (func $run)) (export "sonde_run" (func $run)) (export "sonde_configure" (func $run))`)))
	if i.run.stackSize() == 0 {
		t.Skip("there is no compiler for this processor")
	}
	before := i.used
	i.Run(t.Context(), Attempt{State: i.sandbox.own.NewState()})
	one := i.used - before
	i.Configure(t.Context(), i.sandbox.own, &settings.Settings{})
	if both := i.used - before; one == 0 || both < one*3/2 {
		t.Errorf("%d bytes are counted for one stack, %d for two", one, both)
	}
	i.Close()
}

func TestConnectionsAreCounted(t *testing.T) {
	i := newInstance(t)
	c := endedCall(i)
	c.finish()
	c.life.pastDeadline, c.life.stopped, c.life.ctx = make(chan struct{}), make(chan struct{}), t.Context()
	defer c.finish()
	used := func() int64 { return totalMemory.usedBy(i.sandbox.account) }
	server, err := net.ListenPacket("udp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	defer server.Close()
	port := server.LocalAddr().(*net.UDPAddr).Port
	i.sandbox.config.Grants, err = grant.Parse([]string{"udp://127.0.0.1:*"}, nil, nil)
	if err != nil {
		t.Fatal(err)
	}
	before := used()
	s, errno := c.network.connect(t.Context(), grant.Dest{Network: "udp", Host: "127.0.0.1", Port: uint16(port)}, "")
	if errno != abi.OK || used() != before+datagramBuffer {
		t.Fatalf("%v: %d bytes are counted beside the connection of the instance", errno, used()-before)
	}
	fd := c.open.add(s)
	other, errno := c.network.connect(t.Context(), grant.Dest{Network: "udp", Host: "127.0.0.1", Port: uint16(port)}, "")
	if errno != abi.OK || used() != before+connSize+2*datagramBuffer {
		t.Fatalf("%v: %d bytes are counted for two", errno, used()-before)
	}
	c.open.add(other)
	c.memory.WriteByte(0, 'k')
	room := i.sandbox.Room()
	if result := c.network.hold(args{uint64(fd), 0, 1}); result != 0 || used() != before+2*(connSize+datagramBuffer) || i.sandbox.Room() < room {
		t.Errorf("%d: %d bytes are counted while it is held, and %d more instances have room, %d before", result, used()-before, i.sandbox.Room(), room)
	}
	c.finish()
	if c.input.State.Close(); used() != before || i.sandbox.account.shared != i.sandbox.image.Load().Size() {
		t.Errorf("%d bytes are counted after they were closed, %d are shared", used()-before, i.sandbox.account.shared)
	}
	limitMemory(t, 1)
	if _, errno := c.network.connect(t.Context(), grant.Dest{Network: "udp", Host: "127.0.0.1", Port: uint16(port)}, ""); errno == abi.OK || c.last.Reason != probe.ReasonResources || !c.last.Local || used() != before {
		t.Errorf("without memory: %v, %+v, %d bytes are counted", errno, c.last, used()-before)
	}
}

// A call that ends within dial may have a connection that is not yet among its descriptors.
func TestACallThatEndsInADialLeavesNoConnection(t *testing.T) {
	i := newInstance(t)
	server, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	defer server.Close()
	go func() {
		for conn, err := server.Accept(); err == nil; conn, err = server.Accept() {
			conn.Close()
		}
	}()
	i.sandbox.config.Grants, err = grant.Parse([]string{"tls://127.0.0.1:*"}, nil, nil)
	if err != nil {
		t.Fatal(err)
	}
	d := grant.Dest{Network: "tls", Host: "127.0.0.1", Port: uint16(server.Addr().(*net.TCPAddr).Port)}
	for name, end := range map[string]func(*call){
		"without fuel": func(c *call) { c.cpu.limit = 1 },
		"stopped":      func(c *call) { close(c.life.stopped) },
	} {
		c := computingCall(t, i, 1<<20)
		before := totalMemory.usedBy(i.sandbox.account)
		end(c)
		func() {
			defer func() { _ = recover() }() // as the runtime does
			if _, errno := c.network.connect(t.Context(), d, "verify=none\n"); errno == abi.OK {
				t.Errorf("%s: connected", name)
			}
		}()
		c.finish()
		if left := totalMemory.usedBy(i.sandbox.account) - before; left != 0 {
			t.Errorf("%s: %d bytes are left", name, left)
		}
		c.cpu.releaseSlot()
	}
}

// The size of a stack is read from a field that wazero does not export.
func TestAnUnknownVersionOfTheRuntimeIsRefused(t *testing.T) {
	i := newInstance(t)
	type renamed struct{ api.Function }
	if err := newFunction(&renamed{i.run.Function}).check(); err == nil {
		t.Error("it is accepted")
	}
	if err := i.run.check(); err != nil {
		t.Error(err)
	}
}

func TestAPluginBelowItsShareReclaimsWhatOthersDoNotUse(t *testing.T) {
	b := budget{limit: 1100}
	const size = 50
	idle := 16
	var greedy *account
	greedy = b.open(func() bool {
		if idle == 0 {
			return false
		}
		idle--
		b.releaseInstance(greedy, size)
		return true
	})
	for range idle {
		b.reserveInstance(greedy, size)
	}
	late := b.open(func() bool { t.Error("it closes the instances of the one that waits"); return false })
	b.reserveInstance(late, 100)
	if b.reclaim(late, 150); idle != 16 {
		t.Error("instances are closed though there is room")
	}
	b.limit = 1000 // of which 250 are its share
	if b.room(late, 150) != 0 {
		t.Error("there is room")
	}
	if !b.reserveInstance(late, 150) || idle != 15 || late.waits {
		t.Errorf("%d are left, the plugin waits: %v", idle, late.waits)
	}
	released := false
	if b.reserve(late, 1, func() { released = true }) || idle != 15 || !released {
		t.Errorf("beyond its share: %d are left, the slot is released: %v", idle, released)
	}
}

// A call that makes other plugins close instances releases its slot first.
func TestNoCallClosesInstancesWithASlot(t *testing.T) {
	i := startModule(t, growing)
	c := computingCall(t, i, 1<<30)
	greedy := totalMemory.open(noneIdle)
	t.Cleanup(func() { totalMemory.close(greedy) })
	totalMemory.use(greedy, 64<<20, 64<<20)
	defer totalMemory.use(greedy, -64<<20, -64<<20)
	limitMemory(t, totalMemory.used)
	i.running = &c.cpu
	closed := false
	greedy.closeOldest = func() bool {
		closed = true
		if !c.cpu.slotSince.IsZero() {
			t.Error("the call has a slot")
		}
		return false
	}
	if c.memory.Grow(1); !closed {
		t.Error("no instance is closed")
	}
}

// large is a module of 4 MiB whose sonde_run computes, and then sleeps until it is stopped.
func large() string {
	return string(wattest.Assemble(`(import "wasi_snapshot_preview1" "poll_oneoff" (func $poll (param i32 i32 i32 i32) (result i32)))
		(memory 64) (func $run (result i32) (local $n i32)
			loop local.get $n i32.const 1 i32.add local.tee $n i32.const 100000 i32.lt_s br_if 0 end
			i32.const 24 i64.const 0x0fffffffffffffff i64.store i32.const 0 i32.const 64 i32.const 1 i32.const 128 call $poll)
		(export "memory" (memory 0)) (export "sonde_abi_v1" (func $run)) (export "sonde_run" (func $run))`))
}

// startLarge returns an instance of large. It skips the test if the system does not report modified
// pages.
func startLarge(t *testing.T) *Instance {
	i := startModule(t, large())
	if i.memory.Unused() == 0 {
		t.Skip("this system does not say which pages were changed")
	}
	return i
}

// When memory is scarce, a waiting call is charged for the memory that it has modified, and a
// computing call for the memory that it may modify.
func TestACallThatWaitsIsCountedByWhatItHasChanged(t *testing.T) {
	const size, piece, little = 4 << 20, 1 << 20, 512 << 10
	i := startLarge(t)
	c := computingCall(t, i, 1<<30)
	used := func() int64 { return totalMemory.usedBy(i.sandbox.account) }
	want := func(what string, least, most int64) {
		t.Helper()
		if got := used(); got < least || got > most {
			t.Errorf("%s: %d bytes are counted, want %d to %d", what, got, least, most)
		}
	}
	compute := func() {
		i.fuel.Set(api.EncodeI32(-1))
		c.cpu.tick()
	}
	change := func(at, n int) { c.memory.Write(uint32(at), bytes.Repeat([]byte{1}, n)) }
	whole := used()
	c.cpu.releaseSlot()
	want("waiting with much memory", whole, whole)
	compute()
	limitMemory(t, totalMemory.used)
	c.cpu.releaseSlot()
	want("waiting", whole-size, whole-size+little)
	waiting := used()
	compute()
	want("computing", whole, whole)
	change(0, piece)
	c.cpu.releaseSlot()
	want("waiting with changes", waiting+piece-little, waiting+piece)
	change(piece, writtenByHost)
	release := holdSlots()
	close(c.life.stopped)
	if c.cpu.awaitSlot(time.Now()) {
		t.Error("it has a slot")
	}
	release()
	want("waiting for a slot, after the host has written", waiting+piece+writtenByHost-little, waiting+piece)
	limitMemory(t, totalMemory.used)
	if i.Reset() {
		t.Error("it is used again though there is no memory left for it")
	}
	limitMemory(t, totalMemory.used+size)
	if !i.Reset() {
		t.Error("it is not used again though there is memory")
	}
	want("idle", whole, whole)
	c.life.stopped = make(chan struct{})
	compute()
	change(0, size*3/4)
	limitMemory(t, 1)
	c.cpu.releaseSlot()
	want("with most of its memory changed", whole, whole)
	i.Close()
}

// Otherwise guests that yield again and again could keep all processors busy with scans of their
// memories.
func TestTheMemoryOfACallIsScannedWithItsSlot(t *testing.T) {
	c := computingCall(t, startLarge(t), 1<<30)
	totalMemory.mu.Lock()
	released := make(chan struct{})
	go func() {
		defer close(released)
		c.cpu.releaseSlot()
	}()
	stacks := make([]byte, 1<<20)
	testsync.Until(t, "the scan", func() bool {
		return bytes.Contains(stacks[:runtime.Stack(stacks, true)], []byte(").returnUnused("))
	})
	cpuSlots.mu.Lock()
	used := cpuSlots.used
	cpuSlots.mu.Unlock()
	totalMemory.mu.Unlock()
	if testsync.Receive(t, "the end of the scan", released); used != 1 {
		t.Errorf("%d slots are used while a memory is scanned", used)
	}
}

// TestMoreCallsWaitThanTheirMemoriesHaveRoom runs waiting calls. In addition to the image, the
// memory limit has room for four whole instances.
func TestMoreCallsWaitThanTheirMemoriesHaveRoom(t *testing.T) {
	used := func() int64 {
		totalMemory.mu.Lock()
		defer totalMemory.mu.Unlock()
		return totalMemory.used
	}
	const many, limit = 12, 24 << 20
	first := startLarge(t)
	sandbox := first.sandbox
	first.Close()
	before := used() - totalMemory.usedBy(sandbox.account)
	limitMemory(t, before+limit)
	ctx, cancel := context.WithCancel(t.Context())
	var running sync.WaitGroup
	for n := range many {
		i, err := sandbox.Start(ctx)
		if err != nil {
			t.Fatalf("instance %d: %v, %d bytes are used", n, err, used()-before)
		}
		running.Go(func() {
			defer i.Close()
			if r := i.Run(ctx, Attempt{State: sandbox.own.NewState()}); r.Ending != Stopped {
				t.Errorf("got %+v", r)
			}
		})
		testsync.Until(t, "memory for another instance", func() bool { return sandbox.Room() > 0 })
	}
	if now := used() - before; now > limit {
		t.Errorf("%d bytes are counted", now)
	}
	cancel()
	running.Wait()
}

func TestAPluginThatGotItsShareWaitsNoLonger(t *testing.T) {
	b := budget{limit: 1000}
	greedy, late := b.open(noneIdle), b.open(noneIdle)
	b.reserveInstance(greedy, 700)
	b.reserveInstance(greedy, 100)
	b.add(greedy, 100) // before the limit was lowered
	if b.reserveInstance(late, 10); b.reserveInstance(late, 200) || !b.owes(greedy) {
		t.Error("no plugin waits")
	}
	b.releaseInstance(greedy, 100)
	if !b.reserveInstance(late, 100) || b.owes(greedy) || late.waits {
		t.Error("the plugin waits")
	}
}
