package sandbox

import (
	"context"
	"crypto/rand"
	"crypto/tls"
	"io"
	"log/slog"
	"net"
	"net/http/httptest"
	"runtime"
	"slices"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"testing/synctest"
	"time"

	"github.com/tetratelabs/wazero/api"

	"github.com/sonde-probe/sonde/tests/wattest"
	"github.com/sonde-probe/sonde/wasmhost/abi"
	"github.com/sonde-probe/sonde/wasmhost/internal/grant"
	"github.com/sonde-probe/sonde/wasmhost/internal/module"
	"github.com/sonde-probe/sonde/wasmhost/internal/settings"
)

func TestPluginsGetSlotsInTurn(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		s := slots{limit: func() int { return 1 }}
		var busy, other slotQueue
		s.acquire(&busy, nil)
		var order []string
		wait := func(name string, q *slotQueue) {
			go func() {
				s.acquire(q, nil)
				order = append(order, name)
				s.release()
			}()
			synctest.Wait()
		}
		for range 3 {
			wait("busy", &busy)
		}
		wait("other", &other)
		wait("other", &other)
		s.release()
		synctest.Wait()
		if want := []string{"busy", "other", "busy", "other", "busy"}; !slices.Equal(order, want) {
			t.Errorf("got %v", order)
		}
		if s.used != 0 || len(s.waiting) != 0 {
			t.Errorf("%d slots are used, %d plugins wait", s.used, len(s.waiting))
		}
	})
}

func TestACallThatIsStoppedGetsNoSlot(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		s := slots{limit: func() int { return 1 }}
		var q slotQueue
		s.acquire(&q, nil)
		stop := make(chan struct{})
		got := make(chan bool)
		go func() { got <- s.acquire(&q, stop) }()
		synctest.Wait()
		close(stop)
		if <-got || len(s.waiting) != 0 {
			t.Error("a stopped call has a slot, or waits on")
		}
		s.release()
		if !s.acquire(&q, nil) || s.used != 1 {
			t.Errorf("%d slots are used", s.used)
		}
	})
}

func TestSlotsFollowTheNumberOfProcessors(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		limit := 1
		s := slots{limit: func() int { return limit }}
		var q slotQueue
		s.acquire(&q, nil)
		go s.acquire(&q, nil)
		synctest.Wait()
		limit = 3
		s.acquire(&q, nil)
		synctest.Wait()
		if s.used != 3 {
			t.Errorf("%d slots are used", s.used)
		}
	})
}

// holdSlots occupies all slots until the returned function is called.
func holdSlots() (release func()) {
	var others slotQueue
	n := cpuSlots.limit()
	for range n {
		cpuSlots.acquire(&others, nil)
	}
	return func() {
		for range n {
			cpuSlots.release()
		}
	}
}

// computing is a module of one page whose sonde_run computes for a while, so that it needs a slot,
// and returns 1.
const computing = "\x00asm\x01\x00\x00\x00" +
	"\x01\x05\x01\x60\x00\x01\x7f" +
	"\x03\x02\x01\x00" +
	"\x05\x03\x01\x00\x01" +
	"\x07\x25\x03\x06memory\x02\x00\x0csonde_abi_v1\x00\x00\x09sonde_run\x00\x00" +
	"\x0a\x19\x01\x17\x01\x01\x7f" + // code: one local, counted to 100,000 in a loop
	"\x03\x40\x20\x00\x41\x01\x6a\x22\x00\x41\xa0\x8d\x06\x48\x0d\x00\x0b\x41\x01\x0b"

// If a call waits for other calls, neither the plugin nor the target is to blame.
func TestACallWithoutAProcessorIsStarved(t *testing.T) {
	i := startModule(t, computing)
	release := holdSlots()
	ctx, cancel := context.WithTimeout(t.Context(), 50*time.Millisecond)
	defer cancel()
	r := i.Run(ctx, Attempt{State: i.sandbox.own.NewState()})
	release()
	if r.Ending != Stopped || !r.Starved || r.Waited == 0 {
		t.Errorf("got %+v", r)
	}
	i = startModule(t, computing)
	if r := i.Run(t.Context(), Attempt{State: i.sandbox.own.NewState()}); r.Ending != Returned || r.Value != 1 || r.Fuel < 100000 {
		t.Errorf("with a processor: got %+v", r)
	}
}

// Time in which the system runs other threads while a guest has a slot is lost to the guest.
func TestACallThatTheSystemDoesNotRunIsStarved(t *testing.T) {
	i := newInstance(t)
	for took, want := range map[time.Duration]time.Duration{
		time.Millisecond:                   0,
		longestSlice:                       0,
		longestSlice + 30*time.Millisecond: 30 * time.Millisecond,
	} {
		for ending, end := range map[string]func(*call){
			"tick":      func(c *call) { c.cpu.tick() },
			"host call": func(c *call) { c.cpu.releaseSlot() },
		} {
			synctest.Test(t, func(t *testing.T) {
				c := endedCall(i)
				c.life.stopped = make(chan struct{})
				defer c.finish()
				c.cpu.grantFirst(i.fuel, maxFuel)
				c.cpu.tick()
				time.Sleep(took) // the guest does not run
				end(c)
				c.cpu.releaseSlot()
				if c.cpu.delayed != want || c.cpu.isStarved(took) != (want > took/2) || c.cpu.computed != took-want {
					t.Errorf("slice of %v, ended by a %s: delayed by %v, want %v; computed for %v", took, ending, c.cpu.delayed, want, c.cpu.computed)
				}
			})
		}
	}
}

// A call that computes after it has released its slot needs a new slot immediately: otherwise
// guests that call the host again and again could use all processors.
func TestAHostCallThatMayBlockEndsTheSlotAndItsFuel(t *testing.T) {
	i := newInstance(t)
	c := endedCall(i)
	c.life.stopped = make(chan struct{})
	defer c.finish()
	c.cpu.grantFirst(i.fuel, c.cpu.left())
	left := func() int32 { return api.DecodeI32(i.fuel.Get()) }
	spend := func(n int32) { i.fuel.Set(api.EncodeI32(left() - n)) }
	spend(maxFuel + 1)
	c.cpu.tick()
	spend(10)
	if c.cpu.slotSince.IsZero() || left() <= 0 {
		t.Fatalf("no slot, or %d units", left())
	}
	before := cpuSlots.used
	c.cpu.releaseSlot()
	if cpuSlots.used != before-1 || left() != 0 || c.cpu.total() != maxFuel+11 {
		t.Errorf("%d slots, %d units are left, %d are used", cpuSlots.used, left(), c.cpu.total())
	}
	c.cpu.releaseSlot()
	spend(1)
	c.cpu.tick()
	if c.cpu.slotSince.IsZero() || c.cpu.total() != maxFuel+12 {
		t.Errorf("no slot again, or %d units used", c.cpu.total())
	}
	c.cpu.releaseSlot()
}

// Many deadlines that pass at the same time are handled one after another. This does not delay the
// stops of calls, unless this process was stalled.
func TestALateInterruptDoesNotDelayTheStop(t *testing.T) {
	for late, want := range map[time.Duration]time.Duration{
		0:                      abi.Grace,
		maxInterruptDelay / 2:  abi.Grace,
		maxInterruptDelay + 1:  abi.Grace + 1,
		10 * time.Second:       10*time.Second + abi.Grace - maxInterruptDelay,
		-30 * time.Millisecond: abi.Grace - 30*time.Millisecond, // cancelled before the deadline
	} {
		synctest.Test(t, func(t *testing.T) {
			end := time.Now().Add(time.Second)
			ctx, cancel := context.WithDeadline(t.Context(), end)
			defer cancel()
			l := &lifetime{ctx: ctx}
			l.begin()
			time.Sleep(time.Second + late)
			l.interrupt()
			if <-l.stopped; time.Since(end) != want {
				t.Errorf("%v late: stopped %v after the deadline, want %v", late, time.Since(end), want)
			}
		})
	}
}

// An instruction that handles many bytes computes for a long time, and is paid for in advance: this
// time does not count as delay by the system.
func TestALongInstructionDoesNotDelayItsCall(t *testing.T) {
	const units = 1 << 20 // of 64 MiB
	i := newInstance(t)
	for took, want := range map[time.Duration]time.Duration{
		units * module.SlowUnit:                               0,
		units*module.SlowUnit + 30*time.Millisecond:           30 * time.Millisecond,
		2*(units*module.SlowUnit+longestSlice) + longestSlice: units*module.SlowUnit + 3*longestSlice,
	} {
		synctest.Test(t, func(t *testing.T) {
			c := endedCall(i)
			c.life.stopped = make(chan struct{})
			defer c.finish()
			c.cpu.grantFirst(i.fuel, maxFuel)
			i.fuel.Set(api.EncodeI32(-units)) // the charge of the instruction
			c.cpu.tick()
			time.Sleep(took)
			c.cpu.releaseSlot()
			if c.cpu.delayed != want {
				t.Errorf("slice of %v: delayed by %v, want %v", took, c.cpu.delayed, want)
			}
		})
	}
}

// computingCall returns a call with a slot and units of fuel.
func computingCall(t *testing.T, i *Instance, units int32) *call {
	c := endedCall(i)
	c.life.ctx, c.life.pastDeadline, c.life.stopped = t.Context(), make(chan struct{}), make(chan struct{})
	c.cpu.grantFirst(i.fuel, maxFuel)
	c.cpu.tick()
	c.cpu.granted = units
	i.fuel.Set(api.EncodeI32(units))
	t.Cleanup(func() { c.cpu.releaseSlot(); c.finish() })
	return c
}

// hostFunctions returns all host functions by name.
func hostFunctions() map[string]func(*call, args) {
	all := make(map[string]func(*call, args))
	for name, f := range nativeFunctions() {
		all[name] = func(c *call, a args) { f(c, a) }
	}
	for name, f := range wasiFunctions() {
		all[name] = func(c *call, a args) { f(c, a) }
	}
	return all
}

// A guest is charged for the computation of host functions, and needs a slot meanwhile: otherwise
// guests that only call the host could use all processors.
func TestHostFunctionsThatComputeAreChargedAndKeepTheSlot(t *testing.T) {
	const half = module.PageSize / 2
	i := newInstance(t)
	for name, test := range map[string]struct {
		function string
		args     args
		least    int64
	}{
		"random bytes":         {"random", args{0, half}, half / 4},
		"random bytes of WASI": {"random_get", args{0, half}, half / 4},
		"settings":             {"input", args{abi.InputSettings, 0, half}, 1 << 20 / 64},
		"a target":             {"input", args{abi.InputTarget, 0, half}, 64},
		"a detail":             {"output", args{abi.OutputDetail, 0, half}, abi.MaxDetail / 64},
		"standard output":      {"fd_write", args{stdout, 0, 1000, half}, 1000 * 4},
		"a poll":               {"poll_oneoff", args{0, half, half / subscriptionSize, 0}, half / subscriptionSize * 16},
		"parts of a read":      {"fd_read", args{abi.FirstFD, half, 1000, 0}, 1000 * 4},
	} {
		t.Run(name, func(t *testing.T) {
			c := computingCall(t, i, 1<<30)
			c.input.Settings = &settings.Settings{JSON: strings.Repeat("x", 1<<20)}
			c.memory.Write(0, make([]byte, module.PageSize))
			for n := uint32(0); n < half; n += subscriptionSize {
				c.memory.WriteByte(n+subscriptionTag, eventWrite) // so that the poll does not wait
			}
			before := c.cpu.total()
			hostFunctions()[test.function](c, test.args)
			if used := c.cpu.total() - before; used < test.least {
				t.Errorf("%d units are charged, want at least %d", used, test.least)
			}
			if c.cpu.slotSince.IsZero() {
				t.Error("the slot is given back")
			}
		})
	}
	t.Run("TLS options", func(t *testing.T) {
		c := computingCall(t, i, 1<<30)
		c.open.sockets[abi.FirstFD].data = nil
		c.memory.Write(0, []byte(strings.Repeat("x", half)))
		before := c.cpu.total()
		hostFunctions()["start_tls"](c, args{abi.FirstFD, 0, half})
		if used := c.cpu.total() - before; used < half*16 || c.last.Errno != abi.EINVAL || c.network.dials != 1 {
			t.Errorf("%d units are charged, %d dials are counted: %+v", used, c.network.dials, c.last)
		}
	})
}

// waitingConn is a connection whose methods report whether the call has a slot.
type waitingConn struct {
	net.Conn
	check func(method string)
}

func (c waitingConn) Read(p []byte) (int, error)  { c.check("Read"); return 0, io.EOF }
func (c waitingConn) Write(p []byte) (int, error) { c.check("Write"); return len(p), nil }
func (c waitingConn) Close() error                { c.check("Close"); return nil }
func (c waitingConn) CloseWrite() error           { c.check("CloseWrite"); return nil }

// A waiting call releases its slot.
func TestNoHostFunctionWaitsWithASlot(t *testing.T) {
	i := newInstance(t)
	subscribe := func(tag byte) func(*call) {
		return func(c *call) {
			c.memory.WriteByte(subscriptionTag, tag)
			c.memory.WriteUint32Le(subscriptionFD, abi.FirstFD)
		}
	}
	for name, test := range map[string]struct {
		function string
		args     args
		prepare  func(*call)
	}{
		"read":           {"read", args{abi.FirstFD, 0, 8}, nil},
		"write":          {"write", args{abi.FirstFD, 0, 8}, nil},
		"close":          {"close", args{abi.FirstFD}, nil},
		"handshake":      {"start_tls", args{abi.FirstFD, 0, 0}, func(c *call) { c.life.ctx = context.Background() }},
		"hold":           {"hold", args{abi.FirstFD, 4000, 1}, func(c *call) { c.memory.WriteByte(4000, 'k') }},
		"dial":           {"dial", args{0, 3, 4, 11, 0, 0, 0, 0}, func(c *call) { c.memory.Write(0, []byte("tcp:127.0.0.1:1")) }},
		"lookup":         {"resolve", args{0, 9}, func(c *call) { c.memory.Write(0, []byte("a.invalid")) }},
		"WASI's read":    {"fd_read", args{abi.FirstFD, 0, 1, 64}, func(c *call) { c.memory.WriteUint32Le(4, 8) }},
		"WASI's write":   {"fd_write", args{abi.FirstFD, 0, 1, 64}, func(c *call) { c.memory.WriteUint32Le(4, 8) }},
		"WASI's receive": {"sock_recv", args{abi.FirstFD, 0, 1, 0, 64, 68}, func(c *call) { c.memory.WriteUint32Le(4, 8) }},
		"WASI's send":    {"sock_send", args{abi.FirstFD, 0, 1, 0, 64}, func(c *call) { c.memory.WriteUint32Le(4, 8) }},
		"WASI's close":   {"fd_close", args{abi.FirstFD}, nil},
		"shutdown":       {"sock_shutdown", args{abi.FirstFD, 2}, nil},
		"poll":           {"poll_oneoff", args{0, 64, 1, 128}, subscribe(eventRead)},
		"sleep":          {"poll_oneoff", args{0, 64, 1, 128}, func(c *call) { subscribe(eventClock)(c); c.memory.WriteUint32Le(clockID, abi.ClockMonotonic) }},
		"yield":          {"sched_yield", nil, nil},
		"log":            {"log", args{abi.LogError, 0, 8}, nil},
		"standard error": {"fd_write", args{stderr, 0, 1, 64}, func(c *call) {
			c.memory.WriteUint32Le(0, 80)
			c.memory.WriteUint32Le(4, 5)
			c.memory.Write(80, []byte("text\n"))
		}},
	} {
		t.Run(name, func(t *testing.T) {
			i.sandbox.own.logger = slog.New(slog.NewTextHandler(io.Discard, nil))
			i.sandbox.config.Grants, _ = grant.Parse([]string{"tcp://127.0.0.1:*"}, []string{"a.invalid"}, nil)
			c := computingCall(t, i, 1<<30)
			ended, cancel := context.WithCancel(t.Context())
			cancel() // so that nothing waits
			c.life.ctx = ended
			c.memory.Write(0, make([]byte, module.PageSize))
			check := func(method string) {
				if !c.cpu.slotSince.IsZero() {
					t.Errorf("%s is called with a slot", method)
				}
			}
			s := c.open.sockets[abi.FirstFD]
			s.conn.Close()
			s.conn, s.data, s.err = waitingConn{s.conn, check}, nil, nil
			if test.prepare != nil {
				test.prepare(c)
			}
			hostFunctions()[test.function](c, test.args)
			if !c.cpu.slotSince.IsZero() {
				t.Error("it has the slot afterwards")
			}
			delete(c.open.sockets, abi.FirstFD)
		})
	}
}

// hookedConn is a connection that calls a function before each read.
type hookedConn struct {
	net.Conn
	reads func()
}

func (c hookedConn) Read(p []byte) (int, error) {
	c.reads()
	return c.Conn.Read(p)
}

// A handshake releases its slot while it waits for the server. To verify certificates and to sign,
// it needs a slot again.
func TestAHandshakeComputesWithASlot(t *testing.T) {
	i := newInstance(t)
	server := httptest.NewTLSServer(nil)
	defer server.Close()
	synctest.Test(t, func(t *testing.T) {
		c := endedCall(i)
		c.life.ctx, c.life.pastDeadline, c.life.stopped = t.Context(), make(chan struct{}), make(chan struct{})
		c.cpu.granted = 1 << 30
		ours, theirs := net.Pipe()
		var release func()
		s := c.open.sockets[abi.FirstFD]
		s.conn.Close()
		s.data, s.err, s.conn = nil, nil, hookedConn{ours, func() {
			if release == nil {
				release = holdSlots()
			}
		}}
		go tls.Server(theirs, server.TLS).Handshake()
		done := make(chan abi.Errno, 1)
		go func() {
			config, errno := c.network.readTLSOptions("verify=none\n", s.dest)
			if errno == abi.OK {
				errno = c.network.secure(c.life.ctx, s, config, 0)
			}
			done <- errno
		}()
		synctest.Wait()
		if len(done) > 0 {
			t.Error("the handshake ended without a slot")
		}
		release()
		if errno := <-done; errno != abi.OK || cpuSlots.used != 0 || c.cpu.total() < unitsHandshake {
			t.Errorf("%v: %+v, %d slots are used, %d units", errno, c.last, cpuSlots.used, c.cpu.total())
		}
		c.finish()
	})
}

// countingReader counts the goroutines that read random numbers at the same time.
type countingReader struct{ now, most atomic.Int64 }

func (r *countingReader) Read(p []byte) (int, error) {
	for n := r.now.Add(1); ; {
		most := r.most.Load()
		if n <= most || r.most.CompareAndSwap(most, n) {
			break
		}
	}
	for range 100 {
		runtime.Gosched() // other goroutines would read now
	}
	r.now.Add(-1)
	return len(p), nil
}

// TestGuestsThatLetTheHostComputeShareTheSlots has 64 guests that only call the host. At most as
// many compute at the same time as there are slots, so that the engine has a processor.
func TestGuestsThatLetTheHostComputeShareTheSlots(t *testing.T) {
	i := startModule(t, string(wattest.Assemble(`(import "sonde_v1" "random" (func $random (param i32 i32) (result i32)))
		(memory 1) (func $run (result i32) (local $n i32)
			loop i32.const 0 i32.const 65536 call $random drop
			local.get $n i32.const 1 i32.add local.tee $n i32.const 20 i32.lt_s br_if 0 end i32.const 1)
		(export "memory" (memory 0)) (export "sonde_abi_v1" (func $run)) (export "sonde_run" (func $run))`)))
	all := []*Instance{i}
	for len(all) < 64 {
		other, err := i.sandbox.Start(t.Context())
		if err != nil {
			t.Fatal(err)
		}
		all = append(all, other)
	}
	reader := new(countingReader)
	system := rand.Reader
	rand.Reader = reader
	var running sync.WaitGroup
	for _, i := range all {
		running.Go(func() {
			if r := i.Run(t.Context(), Attempt{State: i.sandbox.own.NewState()}); r.Value != 1 {
				t.Errorf("got %+v", r)
			}
		})
	}
	running.Wait()
	rand.Reader = system
	if most, slots := reader.most.Load(), int64(cpuSlots.limit()); most > slots || most == 0 {
		t.Errorf("the host computed for %d guests at once, there are %d slots", most, slots)
	}
	for _, i := range all {
		i.Close()
	}
}
