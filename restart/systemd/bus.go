package systemd

import (
	"context"
	"errors"
	"sync"
	"time"

	"github.com/sonde-probe/sonde/internal/dbus"
	"github.com/sonde-probe/sonde/internal/wake"
)

// Times of a bus.
const (
	syncInterval = time.Minute            // between two queries of each unit, in case signals were missed
	pingInterval = 5 * time.Second        // between two checks whether systemd responds
	callTimeout  = 5 * time.Second        // for a response
	minRetry     = 100 * time.Millisecond // after the bus was lost, doubled with each failure
	maxRetry     = 5 * time.Second
)

// Names of systemd at a bus.
const (
	managerName  = "org.freedesktop.systemd1"
	managerPath  = "/org/freedesktop/systemd1"
	managerType  = "org.freedesktop.systemd1.Manager"
	unitType     = "org.freedesktop.systemd1.Unit"
	propertyType = "org.freedesktop.DBus.Properties"
	peerType     = "org.freedesktop.DBus.Peer"
)

// Buses holds the buses that drivers share: one connection per socket, regardless of the number of units. The zero
// value is ready for use, and safe for concurrent use.
type Buses struct {
	mu    sync.Mutex // guards known, and the users of its values
	known map[string]*bus
}

// bus keeps the state of one systemd's units up to date for followers.
type bus struct {
	socket  string
	users   int
	stop    context.CancelFunc
	stopped chan struct{}

	changed  wake.Signal // a follower is stale, or new
	replaced wake.Signal // systemd was replaced by a new process, to which nobody has subscribed

	mu        sync.Mutex // guards the fields below, and those of followers
	followers map[*follower]bool
	conn      *dbus.Conn // nil while it is lost
	lost      error      // why systemd is unreachable; nil if it is reachable
	since     time.Time  // when lost last changed between nil and an error
}

// follower watches a unit for one driver.
type follower struct {
	name    string
	changed func() // it must not block

	unit    unit
	isKnown bool
	isStale bool // a query of the unit is due
}

var (
	errNotConnected = errors.New("not connected yet")
	errReplaced     = errors.New("systemd was restarted")
)

// follow starts to watch a unit, until release is called. changed is called after each change of the view.
func (all *Buses) follow(socket, name string, changed func()) (b *bus, f *follower, release func()) {
	all.mu.Lock()
	defer all.mu.Unlock()
	if all.known == nil {
		all.known = map[string]*bus{}
	}
	b = all.known[socket]
	if b == nil {
		b = &bus{socket: socket, changed: wake.New(), replaced: wake.New(), followers: map[*follower]bool{}, lost: errNotConnected, since: time.Now()}
		all.known[socket] = b
	}
	if b.users++; b.users == 1 {
		ctx, cancel := context.WithCancel(context.Background())
		b.stop, b.stopped = cancel, make(chan struct{})
		go b.run(ctx)
	}
	f = &follower{name: name, changed: changed, isStale: true}
	b.mu.Lock()
	b.followers[f] = true
	b.mu.Unlock()
	b.changed.Set()
	return b, f, func() { all.release(b, f) }
}

func (all *Buses) release(b *bus, f *follower) {
	b.mu.Lock()
	delete(b.followers, f)
	b.mu.Unlock()
	all.mu.Lock()
	defer all.mu.Unlock()
	if b.users--; b.users == 0 {
		b.stop()
		<-b.stopped // no deadlock: run waits for no driver, and its calls end with its context
		delete(all.known, b.socket)
	}
}

// view is the last known state of a unit.
type view struct {
	unit
	isKnown bool      // unit holds the last known state
	lost    error     // why systemd is unreachable; nil if it is reachable
	since   time.Time // when it became unreachable or reachable
}

func (b *bus) view(f *follower) view {
	b.mu.Lock()
	defer b.mu.Unlock()
	return view{unit: f.unit, isKnown: f.isKnown, lost: b.lost, since: b.since}
}

// run keeps units up to date until ctx is done.
func (b *bus) run(ctx context.Context) {
	defer close(b.stopped)
	for retry := minRetry; ; retry = min(2*retry, maxRetry) {
		began := time.Now()
		err := b.connect(ctx)
		if ctx.Err() != nil {
			return
		}
		b.setLost(failed(err, b.socket, ""))
		if time.Since(began) > maxRetry {
			retry = minRetry
		}
		select {
		case <-ctx.Done():
			return
		case <-time.After(retry):
		}
	}
}

// setLost records why systemd is unreachable, or nil. It notifies all followers, unless systemd was and is reachable.
func (b *bus) setLost(err error) {
	b.mu.Lock()
	defer b.mu.Unlock()
	if err == nil && b.lost == nil {
		return
	}
	if err == nil || b.lost == nil {
		b.since = time.Now()
	}
	b.lost = err
	for f := range b.followers {
		f.changed()
	}
}

// connect keeps units up to date until the connection to systemd is lost, and returns why it was lost.
func (b *bus) connect(ctx context.Context) error {
	conn, err := b.subscribe(ctx)
	if err != nil {
		return err
	}
	b.setConn(conn)
	defer func() {
		b.setConn(nil)
		conn.Close()
	}()
	b.markAll()
	ping, again := time.NewTicker(pingInterval), time.NewTicker(syncInterval)
	defer ping.Stop()
	defer again.Stop()
	for {
		if err := b.lookAtStale(ctx, conn); err != nil {
			return err
		}
		b.setLost(nil)
		select {
		case <-ctx.Done():
			return context.Cause(ctx)
		case <-conn.Closed():
			return conn.Err()
		case <-b.replaced:
			return errReplaced
		case <-b.changed:
		case <-again.C:
			b.markAll()
		case <-ping.C:
			if _, err := call(ctx, conn, dbus.Call{Destination: managerName, Path: managerPath, Interface: peerType, Method: "Ping"}); err != nil {
				return err
			}
		}
	}
}

// subscribe connects to the bus, and subscribes to the signals of systemd.
func (b *bus) subscribe(ctx context.Context) (*dbus.Conn, error) {
	dialing, cancel := context.WithTimeout(ctx, callTimeout)
	defer cancel()
	conn, err := dbus.Dial(dialing, b.socket, b.receive)
	if err != nil {
		return nil, err
	}
	for _, rule := range []string{
		"type='signal',sender='" + managerName + "',interface='" + propertyType + "',member='PropertiesChanged',path_namespace='" + managerPath + "/unit'",
		"type='signal',sender='" + managerName + "',interface='" + managerType + "',member='Reloading'",
		"type='signal',sender='org.freedesktop.DBus',member='NameOwnerChanged',arg0='" + managerName + "'",
	} {
		if err == nil {
			err = conn.Match(dialing, rule)
		}
	}
	if err == nil {
		_, err = conn.Call(dialing, dbus.Call{Destination: managerName, Path: managerPath, Interface: managerType, Method: "Subscribe"})
	}
	if err != nil {
		conn.Close()
		return nil, err
	}
	return conn, nil
}

func (b *bus) setConn(c *dbus.Conn) {
	b.mu.Lock()
	b.conn = c
	b.mu.Unlock()
}

// receive marks the followers of the signal's unit as stale.
func (b *bus) receive(s dbus.Signal) {
	if s.Member == "NameOwnerChanged" {
		b.replaced.Set()
		return
	}
	b.mark(func(f *follower) bool {
		return s.Member != "PropertiesChanged" || s.Path == path(f.name) || s.Path == path(f.unit.ID)
	})
}

func (b *bus) markAll() { b.mark(func(*follower) bool { return true }) }

// mark marks the followers for which is returns true as stale.
func (b *bus) mark(is func(*follower) bool) {
	b.mu.Lock()
	defer b.mu.Unlock()
	for f := range b.followers {
		if is(f) {
			f.isStale = true
			b.changed.Set()
		}
	}
}

// lookAtStale queries the units of all stale followers.
func (b *bus) lookAtStale(ctx context.Context, conn *dbus.Conn) error {
	for f := b.takeStale(); f != nil; f = b.takeStale() {
		u, err := look(ctx, conn, f.name)
		if err != nil {
			return err
		}
		b.mu.Lock()
		if !f.isKnown || f.unit != u {
			f.unit, f.isKnown = u, true
			f.changed()
		}
		b.mu.Unlock()
	}
	return nil
}

func (b *bus) takeStale() *follower {
	b.mu.Lock()
	defer b.mu.Unlock()
	for f := range b.followers {
		if f.isStale {
			f.isStale = false
			return f
		}
	}
	return nil
}

// call calls a method of systemd.
func call(ctx context.Context, conn *dbus.Conn, c dbus.Call, args ...string) ([]any, error) {
	ctx, cancel := context.WithTimeout(ctx, callTimeout)
	defer cancel()
	return conn.Call(ctx, c, args...)
}

// look queries the properties of a unit.
func look(ctx context.Context, conn *dbus.Conn, name string) (unit, error) {
	answer, err := call(ctx, conn, dbus.Call{Destination: managerName, Path: path(name), Interface: propertyType, Method: "GetAll"}, "")
	if err != nil {
		return unit{}, err
	}
	if len(answer) == 1 {
		if properties, ok := answer[0].(map[string]any); ok {
			return unitOf(properties), nil
		}
	}
	return unit{}, errors.New("systemd answered GetAll without properties")
}

// act calls a method that starts or restarts a unit.
func (b *bus) act(ctx context.Context, name, at, of, method string, args ...string) error {
	b.mu.Lock()
	conn, err := b.conn, b.lost
	b.mu.Unlock()
	switch {
	case conn != nil:
		_, err = call(ctx, conn, dbus.Call{Destination: managerName, Path: at, Interface: of, Method: method}, args...)
	case err == nil:
		err = errors.New("the connection is being set up")
	}
	if err == nil || errors.As(err, new(*Error)) {
		return err
	}
	return failed(err, b.socket, name)
}

// modeFail is the mode of a job that must not replace another job, such as a stop of the unit by somebody else.
const modeFail = "fail"

// restart restarts one invocation of a unit if it is still running. It returns errChanged if it is not the current one.
func (b *bus) restart(ctx context.Context, name, invocation string) error {
	return b.act(ctx, name, path(invocation), unitType, "TryRestart", modeFail)
}

// start starts a unit unless it is running.
func (b *bus) start(ctx context.Context, name string) error {
	return b.act(ctx, name, managerPath, managerType, "StartUnit", name, modeFail)
}
