package process

import (
	"bytes"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"net"
	"os"
	"path/filepath"
	"strconv"
	"strings"
	"sync"
	"syscall"
	"time"

	"golang.org/x/sys/unix"

	"github.com/sonde-probe/sonde/adapter/restart"
	"github.com/sonde-probe/sonde/internal/command"
	"github.com/sonde-probe/sonde/internal/files"
)

// The endings of the two files of an instance in AdoptDir.
const (
	socketEnding      = ".sock" // the guard accepts one engine at a time
	descriptionEnding = ".json" // a Survivor
)

// maxDescription bounds a description, in bytes.
const maxDescription = 64 << 10

// Survivors returns the instances in a directory whose guards run, and removes the files
// of others.
func Survivors(dir string) (found []Survivor) {
	entries, _ := os.ReadDir(dir) // without the directory there are none
	for _, e := range entries {
		name, ok := strings.CutSuffix(e.Name(), descriptionEnding)
		if !ok || strings.HasPrefix(name, ".") {
			continue
		}
		path := filepath.Join(dir, e.Name())
		text, err := files.ReadRegular(path, maxDescription)
		s := Survivor{name: name}
		if err != nil || json.Unmarshal(text, &s) != nil || s.GuardStart == 0 || startTime(s.Guard) != s.GuardStart {
			_ = os.Remove(path)
			_ = os.Remove(filepath.Join(dir, name+socketEnding))
			continue
		}
		found = append(found, s)
	}
	return found
}

// startTime returns when a process was started, in clock ticks since boot; 0 if there is
// no such process. It tells a process from a later one with the same ID.
func startTime(pid int) uint64 {
	stat, err := os.ReadFile("/proc/" + strconv.Itoa(pid) + "/stat")
	if err != nil {
		return 0
	}
	fields := bytes.Fields(stat[bytes.LastIndexByte(stat, ')')+1:])
	const field = 22 - 3 // see proc(5); the fields after the name begin with the third
	if len(fields) <= field {
		return 0
	}
	ticks, _ := strconv.ParseUint(string(fields[field]), 10, 64)
	return ticks
}

// Resume reports whether the next Run takes over an instance of an earlier engine. It
// makes the driver a restart.Resumer.
func (d *Driver) Resume(id string) bool {
	if !d.config.Adopt {
		return false
	}
	for _, s := range Survivors(d.config.AdoptDir) {
		if s.Target == d.config.Target && s.ID == id && s.Digest == d.digest {
			return true
		}
	}
	return false
}

// End ends the survivors of a directory whose targets are unwanted, within
// restart.DefaultTerminationGracePeriod, and returns when they have ended or ctx is done.
func End(ctx context.Context, c Config, unwanted func(target string) bool) {
	var ending sync.WaitGroup
	for _, s := range Survivors(c.AdoptDir) {
		if unwanted(s.Target) {
			c.Target = s.Target
			d := &Driver{config: c}
			d.config.Log = c.Log.With("target", s.Target)
			ending.Go(func() { _ = d.end(ctx, s) })
		}
	}
	ending.Wait()
}

// takeOver returns the instance of the target that an earlier engine has left running,
// or nil. An instance of another configuration is ended.
func (d *Driver) takeOver(ctx context.Context) (*instance, error) {
	if d.config.AdoptDir == "" {
		return nil, nil
	}
	for _, s := range Survivors(d.config.AdoptDir) {
		switch {
		case s.Target != d.config.Target:
		case d.config.Adopt && s.Digest == d.digest:
			return d.attach(s.name)
		default:
			if err := d.end(ctx, s); err != nil {
				return nil, err
			}
		}
	}
	return nil, nil
}

// end ends an instance that an earlier engine has left running.
func (d *Driver) end(ctx context.Context, s Survivor) error {
	i, err := d.attach(s.name)
	if err != nil {
		return err
	}
	defer i.close()
	i.log.Info("terminating instance of an earlier engine", "instance", s.ID, "grace_period", restart.DefaultTerminationGracePeriod)
	end := make(chan time.Duration, 1)
	end <- restart.DefaultTerminationGracePeriod
	i.watch(ctx, func(string) {}, end)
	return nil
}

// startAdoptable starts a guard that outlives the engine, and attaches to it.
func (d *Driver) startAdoptable(plan command.Plan) (*instance, error) {
	if err := privateDir(d.config.AdoptDir); err != nil {
		return nil, err
	}
	a := adopt{Dir: d.config.AdoptDir, Name: newSuffix(), Target: d.config.Target, Digest: d.digest, Suffix: newSuffix()}
	var err error
	if a.Dir, err = filepath.Abs(a.Dir); err != nil {
		return nil, err
	}
	starter := d.newInstance()
	if err := starter.startGuard(d.config.Target, nil, nil); err != nil {
		return nil, fmt.Errorf("guard: %w", err)
	}
	defer starter.close()
	starter.order(order{Start: &start{Plan: plan, Cgroup: !d.config.NoCgroup, Adopt: &a}})
	r, alive := <-starter.reports
	switch {
	case !alive:
		return nil, fmt.Errorf("guard ended before it started the command: %s", starter.guard.wait())
	case r.Error != "":
		starter.guard.wait()
		return nil, errors.New(r.Error)
	}
	go starter.guard.wait() // it is this engine's child, as long as this engine runs
	return d.attach(a.Name)
}

// privateDir creates a directory that only this user can enter.
func privateDir(dir string) error {
	if err := os.MkdirAll(dir, 0o700); err != nil {
		return err
	}
	info, err := os.Lstat(dir)
	if err != nil {
		return err
	}
	stat, _ := info.Sys().(*syscall.Stat_t)
	if !info.IsDir() || info.Mode().Perm()&0o077 != 0 || stat == nil || int(stat.Uid) != os.Geteuid() {
		return fmt.Errorf("%s must be a directory of this user with mode 0700", dir)
	}
	return nil
}

// attach connects to the guard of an instance, which so becomes this engine's.
func (d *Driver) attach(name string) (*instance, error) {
	conn, err := dialGuard(d.config.AdoptDir, name)
	if err != nil {
		return nil, fmt.Errorf("guard of a running instance: %w", err)
	}
	g := &adoptedGuard{}
	hello, err := g.receive(conn)
	if err != nil {
		g.detach()
		return nil, errors.Join(fmt.Errorf("guard of a running instance: %w", err), conn.Close())
	}
	i := d.newInstance()
	i.guard, i.lifeline, i.orders = g, conn, json.NewEncoder(conn)
	i.reports = readReports(struct {
		io.Reader
		io.Closer
	}{io.MultiReader(bytes.NewReader(hello), conn), io.NopCloser(nil)})
	for n, output := range g.outputs {
		g.copying.Go(func() { _, _ = i.streams[n].ReadFrom(output) })
	}
	return i, nil
}

// inDir returns a path of a file that is short enough for a socket's address, and is
// valid until the directory is closed.
func inDir(dir *os.File, name string) string {
	return fmt.Sprintf("/proc/self/fd/%d/%s", dir.Fd(), name)
}

// attachTimeout is how long a guard may take to accept an engine.
const attachTimeout = 5 * time.Second

func dialGuard(dir, name string) (*net.UnixConn, error) {
	d, err := os.Open(dir)
	if err != nil {
		return nil, err
	}
	defer d.Close()
	return net.DialUnix("unix", nil, &net.UnixAddr{Net: "unix", Name: inDir(d, name+socketEnding)})
}

// adoptedGuard is a guard that the engine has attached to.
type adoptedGuard struct {
	peer     int // its process ID
	outputs  []*os.File
	copying  sync.WaitGroup
	detached sync.Once
}

// receive receives the guard's first report and the outputs of the command.
func (g *adoptedGuard) receive(conn *net.UnixConn) (hello []byte, err error) {
	peer, err := peerOf(conn)
	if err != nil {
		return nil, err
	}
	g.peer = int(peer.Pid)
	if err := conn.SetReadDeadline(time.Now().Add(attachTimeout)); err != nil {
		return nil, err
	}
	hello, rights := make([]byte, maxDescription), make([]byte, unix.CmsgSpace(2*4))
	n, nrights, _, _, err := conn.ReadMsgUnix(hello, rights)
	if err != nil {
		return nil, err
	}
	messages, err := unix.ParseSocketControlMessage(rights[:nrights])
	if err != nil || len(messages) != 1 {
		return nil, errors.Join(errors.New("it has not sent the outputs of the command"), err)
	}
	fds, err := unix.ParseUnixRights(&messages[0])
	if err != nil {
		return nil, err
	}
	for _, fd := range fds {
		unix.CloseOnExec(fd)
		g.outputs = append(g.outputs, os.NewFile(uintptr(fd), "output"))
	}
	if len(g.outputs) != 2 {
		return nil, errors.New("it has not sent both outputs of the command")
	}
	return hello[:n], conn.SetReadDeadline(time.Time{})
}

// peerOf returns the process at the other end, which must be this user's.
func peerOf(conn *net.UnixConn) (*unix.Ucred, error) {
	raw, err := conn.SyscallConn()
	if err != nil {
		return nil, err
	}
	var cred *unix.Ucred
	var credErr error
	if err := raw.Control(func(fd uintptr) { cred, credErr = unix.GetsockoptUcred(int(fd), unix.SOL_SOCKET, unix.SO_PEERCRED) }); err != nil {
		return nil, err
	}
	if credErr != nil {
		return nil, os.NewSyscallError("getsockopt", credErr)
	}
	if int(cred.Uid) != os.Geteuid() {
		return nil, fmt.Errorf("process %d of user %d is not trusted", cred.Pid, cred.Uid)
	}
	return cred, nil
}

func (g *adoptedGuard) pid() int { return g.peer }

// wait waits for the rest of the outputs. Another process may hold them open.
func (g *adoptedGuard) wait() string {
	for _, output := range g.outputs {
		_ = output.SetReadDeadline(time.Now().Add(drain))
	}
	g.copying.Wait()
	g.detach()
	return "exited"
}

// detach stops reading the outputs.
func (g *adoptedGuard) detach() {
	g.detached.Do(func() {
		for _, output := range g.outputs {
			_ = output.SetReadDeadline(time.Now())
		}
		g.copying.Wait()
		for _, output := range g.outputs {
			_ = output.Close()
		}
	})
}
