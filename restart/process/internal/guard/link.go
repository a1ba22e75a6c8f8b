package guard

import (
	"encoding/json"
	"os"
)

// link connects a guard to its engine and, if the command outlives the engine, to engines that attach later. It belongs
// to the goroutine of attend.
type link struct {
	orders   chan<- Order  // to the guard; attend closes it when the command must not run without the engine
	last     <-chan Report // delivers the last report when the command has ended
	hello    Report        // for engines that attach later
	adoption *adoption     // nil unless the command outlives the engine
	killed   bool          // an engine has ordered to kill the command
}

// attend forwards the orders of the engine that started the guard and, if the command outlives it, of engines that
// attach later. It returns when the command has ended and its last report was sent to an engine, or the engine that had
// ended it is disconnected, or no engine can find the guard.
func (l *link) attend(e engine) {
	for !l.passOn(e) {
		_ = e.socket.Close()
		if l.adoption == nil || l.killed {
			close(l.orders)
			<-l.last
			l.adoption.remove()
			return
		}
		var found bool
		if e, found = l.adoption.accept(l.hello, func() bool { return len(l.last) > 0 }); !found {
			l.endUnfound()
			return
		}
	}
}

// endUnfound ends the command of a guard that no engine can find.
func (l *link) endUnfound() {
	defer l.adoption.remove()
	defer l.adoption.readOutputs()()
	select {
	case l.orders <- Order{Signal: Terminate, Grace: l.adoption.adopt.Grace, StopSignal: l.adoption.adopt.StopSignal}:
		<-l.last
	case <-l.last:
	}
}

// passOn forwards the orders of one engine until it disconnects. It reports whether the last report was sent to the
// engine.
func (l *link) passOn(e engine) (reported bool) {
	orders := e.readOrders()
	for {
		select {
		case o, open := <-orders:
			if !open {
				return false
			}
			l.killed = l.killed || o.Signal == Kill
			select {
			case l.orders <- o:
			case last := <-l.last:
				l.finish(e, last)
				return true
			}
		case last := <-l.last:
			l.finish(e, last)
			return true
		}
	}
}

// finish sends the last report. From then on the next engine starts a new instance.
func (l *link) finish(e engine, last Report) {
	l.adoption.remove()
	e.send(last)
}

// engine is an engine that is attached to the guard.
type engine struct {
	socket *os.File
	orders *json.Decoder
}

func newEngine(socket *os.File) engine { return engine{socket, json.NewDecoder(socket)} }

// send sends a report. It ignores errors: the engine has disconnected then.
func (e engine) send(r Report) { _ = json.NewEncoder(e.socket).Encode(r) }

// readOrders returns the orders as they arrive. The channel is closed when the engine disconnects.
func (e engine) readOrders() <-chan Order {
	orders := make(chan Order)
	go func() {
		defer close(orders)
		for {
			var o Order
			if e.orders.Decode(&o) != nil {
				return
			}
			orders <- o
		}
	}()
	return orders
}
