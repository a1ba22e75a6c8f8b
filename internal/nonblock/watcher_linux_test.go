package nonblock

import (
	"io"
	"net"
	"syscall"
	"testing"

	"github.com/sonde-probe/sonde/tests/faulttest"
	"github.com/sonde-probe/sonde/tests/testsync"
)

// connected returns both ends of a TCP connection.
func connected(t *testing.T) (client, server net.Conn) {
	t.Helper()
	listener, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	defer listener.Close()
	if client, err = net.Dial("tcp", listener.Addr().String()); err != nil {
		t.Fatal(err)
	}
	if server, err = listener.Accept(); err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { client.Close(); server.Close() })
	return client, server
}

// counted returns a function that can be waited for.
func counted() (onEnd func(), calls chan struct{}) {
	calls = make(chan struct{}, 100)
	return func() { calls <- struct{}{} }, calls
}

func TestTheEndsOfWatchedConnectionsAreReportedOnce(t *testing.T) {
	var w Watcher
	for range 3 { // each round starts a new goroutine
		const many = 50
		var servers []net.Conn
		var watches []*Watch
		onEnd, calls := counted()
		for range many {
			client, server := connected(t)
			watch := w.Watch(client)
			watch.Arm(onEnd)
			servers, watches = append(servers, server), append(watches, watch)
		}
		for i, server := range servers {
			if watches[i].Ended() {
				t.Fatalf("connection %d has ended", i)
			}
			server.Close()
			testsync.Receive(t, "the end", calls)
			if !watches[i].Ended() {
				t.Errorf("connection %d has not ended", i)
			}
		}
		for _, watch := range watches {
			watch.Arm(onEnd)
			watch.Remove()
			watch.Remove()
		}
		if len(calls) != 0 {
			t.Errorf("%d ends were reported twice", len(calls))
		}
		w.mu.Lock()
		if w.set != nil {
			t.Error("the goroutine runs although nothing is watched")
		}
		w.mu.Unlock()
	}
}

func TestAnEndIsReportedWhenTheWatchIsArmed(t *testing.T) {
	var w Watcher
	client, server := connected(t)
	other, otherServer := connected(t)
	onEnd, calls := counted()
	watch := w.Watch(client)
	watch.Arm(onEnd)
	watch.Disarm()
	last := w.Watch(other)
	onLast, lastCalls := counted()
	last.Arm(onLast)
	server.Close()
	otherServer.Close()
	testsync.Receive(t, "the end", lastCalls)
	testsync.Until(t, "the end", watch.Ended)
	if len(calls) != 0 {
		t.Fatal("the end of a connection was reported to a watch that is not armed")
	}
	watch.Arm(onEnd)
	testsync.Receive(t, "the end", calls)
	watch.Remove()
	last.Remove()
}

func TestARemovedWatchReportsNothing(t *testing.T) {
	var w Watcher
	removed, removedServer := connected(t)
	client, server := connected(t)
	onEnd, calls := counted()
	watch, other := w.Watch(removed), w.Watch(client)
	watch.Arm(onEnd)
	watch.Remove()
	onOther, otherCalls := counted()
	other.Arm(onOther)
	removedServer.Close()
	server.Close()
	testsync.Receive(t, "the end", otherCalls)
	if len(calls) != 0 {
		t.Error("the end of a connection was reported to a watch that was removed")
	}
	other.Remove()
}

func TestANilWatchDoesNothing(t *testing.T) {
	near, _ := net.Pipe()
	var w Watcher
	watch := w.Watch(near)
	if watch != nil || watch.Ended() {
		t.Errorf("a pipe has the watch %+v", watch)
	}
	watch.Arm(func() { t.Error("an end was reported") })
	watch.Disarm()
	watch.Remove()
}

func TestUnreadCountsWhatHasArrived(t *testing.T) {
	client, server := connected(t)
	if n := Unread(client); n != 0 {
		t.Errorf("%d bytes are unread", n)
	}
	if _, err := io.WriteString(server, "12345"); err != nil {
		t.Fatal(err)
	}
	testsync.Until(t, "5 unread bytes", func() bool { return Unread(client) == 5 })
	client.Close()
	if n := Unread(client); n != 0 {
		t.Errorf("%d bytes are unread of a closed connection", n)
	}
}

// spoil makes waiting with a watcher's set fail: its descriptor becomes another file.
func spoil(t *testing.T, w *Watcher) {
	t.Helper()
	w.mu.Lock()
	defer w.mu.Unlock()
	if err := syscall.Dup3(w.set.event, w.set.epoll, syscall.O_CLOEXEC); err != nil {
		t.Fatal(err)
	}
	w.set.Wake()
}

func TestWhenWaitingFailsTheConnectionsAreWatchedByAnotherSet(t *testing.T) {
	var w Watcher
	first, firstServer := connected(t)
	client, server := connected(t)
	onFirst, firstCalls := counted()
	onEnd, calls := counted()
	w.Watch(first).Arm(onFirst)
	watch := w.Watch(client)
	watch.Arm(onEnd)
	firstServer.Close()
	testsync.Receive(t, "the first end", firstCalls) // the set has worked
	w.mu.Lock()
	before := w.set
	w.mu.Unlock()
	spoil(t, &w)
	testsync.Until(t, "another set", func() bool {
		w.mu.Lock()
		defer w.mu.Unlock()
		return w.set != before && w.set != nil
	})
	if len(calls) != 0 || watch.Ended() {
		t.Error("a connection has ended that is open")
	}
	server.Close()
	testsync.Receive(t, "the end", calls)
	if len(firstCalls) != 0 {
		t.Error("an end was reported twice")
	}
}

func TestWhenNothingCanBeWatchedTheOwnersLookThemselves(t *testing.T) {
	var w Watcher
	open, _ := connected(t)
	closed, server := connected(t)
	onOpen, openCalls := counted()
	onClosed, closedCalls := counted()
	watchOpen, watchClosed := w.Watch(open), w.Watch(closed)
	watchOpen.Arm(onOpen)
	watchClosed.Arm(onClosed)
	spare, _ := connected(t)
	restore := faulttest.NoDescriptors(t)
	w.mu.Lock()
	syscall.Close(w.set.epoll)
	w.set.Wake()
	w.mu.Unlock()
	testsync.Receive(t, "a report", openCalls)
	testsync.Receive(t, "a report", closedCalls)
	if w.Watch(spare) != nil {
		t.Error("a connection is watched without descriptors")
	}
	restore()
	server.Close()
	testsync.Until(t, "the end", watchClosed.Ended)
	if watchOpen.Ended() {
		t.Error("a connection has ended that is open")
	}
	again := w.Watch(spare)
	if again == nil {
		t.Error("a connection is not watched although there are descriptors again")
	}
	if len(openCalls)+len(closedCalls) != 0 {
		t.Error("a connection was reported twice")
	}
	again.Remove()
}
