package process

import (
	"bytes"
	"cmp"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"io/fs"
	"log/slog"
	"net"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"syscall"
	"time"

	"golang.org/x/sys/unix"

	"github.com/sonde-probe/sonde/internal/files"
	"github.com/sonde-probe/sonde/internal/logfile"
	"github.com/sonde-probe/sonde/internal/private"
	"github.com/sonde-probe/sonde/restart"
	"github.com/sonde-probe/sonde/restart/process/internal/guard"
)

// maxDescription is the maximum size of a description, in bytes.
const maxDescription = 64 << 10

// removeTimeout is how long a caller waits for the remaining processes of a killed guard to die, before it must try
// again. New guards of the same name wait longer for the description, which is locked meanwhile.
const removeTimeout = 100 * time.Millisecond

// attachTimeout is the maximum time that a guard may take to accept an engine.
const attachTimeout = 5 * time.Second

// readSurvivors returns the instances in a directory whose guards are running, or may be running. For the others it
// kills remaining processes and removes the files. It returns none for a directory that does not exist.
func readSurvivors(dir string) (Survivors, error) {
	entries, err := os.ReadDir(dir)
	if errors.Is(err, fs.ErrNotExist) {
		return nil, nil
	}
	if err != nil {
		return nil, err
	}
	found := Survivors{}
	for _, e := range entries {
		if name, ok := strings.CutSuffix(e.Name(), guard.DescriptionEnding); ok {
			if s, state := findGuard(dir, name); state != guardEnded {
				found[name] = s
			}
		}
	}
	return found, nil
}

// RunningIn returns the targets, sorted, of instances whose guards are running in the directory that OpenDirectory
// would return for the name. It returns none for "". It changes nothing.
func RunningIn(name string) (targets []string) {
	if name == "" {
		return nil
	}
	places, _ := placesOf(name)
	for _, dir := range places {
		entries, _ := os.ReadDir(dir)
		for _, e := range entries {
			if s, ok := readRunning(filepath.Join(dir, e.Name())); ok {
				targets = append(targets, s.Target)
			}
		}
	}
	slices.Sort(targets)
	return targets
}

// readRunning reads the description of an instance. It returns false unless the file is one whose guard is running.
func readRunning(path string) (s Survivor, ok bool) {
	if !strings.HasSuffix(path, guard.DescriptionEnding) {
		return s, false
	}
	f, err := os.OpenFile(path, os.O_RDONLY|syscall.O_NONBLOCK, 0)
	if err != nil {
		return s, false
	}
	defer f.Close()
	if locked, _, err := guard.Lock(f); err != nil || locked {
		return s, false
	}
	_, err = s.read(f)
	return s, err == nil
}

// guardState says whether a guard is running.
type guardState uint8

const (
	guardUnknown guardState = iota // Survivor.Err says why
	guardRuns
	guardEnded // nothing remains of it
)

// findGuard returns the instance with a name, and whether its guard is running: a running guard has locked its
// description. If the guard was killed, findGuard kills its remaining processes and removes its files.
func findGuard(dir, name string) (s Survivor, state guardState) {
	s.name = name
	f, err := os.OpenFile(s.path(dir, guard.DescriptionEnding), os.O_RDONLY|syscall.O_NONBLOCK, 0)
	if errors.Is(err, fs.ErrNotExist) {
		return s, guardEnded
	}
	if s.Err = err; err != nil {
		return s, guardUnknown
	}
	defer f.Close()
	locked, named, err := guard.Lock(f)
	switch {
	case err != nil:
		s.Err = err
	case !named: // the guard has removed it in the meantime
		return s, guardEnded
	case !locked:
		if _, s.Err = s.read(f); s.Err == nil {
			return s, guardRuns
		}
	default:
		if s.Err = s.remove(dir, f); s.Err == nil {
			return s, guardEnded
		}
	}
	return s, guardUnknown
}

func (s *Survivor) path(dir, ending string) string { return filepath.Join(dir, s.name+ending) }

// read reads the latest description in the file. It ignores an incomplete one, which a guard may be adding.
func (s *Survivor) read(f *os.File) (d guard.Description, err error) {
	text, err := files.ReadFrom(f, f.Name(), maxDescription)
	if err != nil {
		return d, err
	}
	for decoder := json.NewDecoder(bytes.NewReader(text)); err == nil; {
		err = decoder.Decode(&d)
	}
	s.Target, s.ID, s.Started, s.digest = d.Target, d.ID, d.Started, d.Digest
	s.stop = restart.StopSettings{GracePeriod: d.Grace, Signal: restart.StopSignal(d.StopSignal)}
	if d.Target != "" && (err == io.EOF || err == io.ErrUnexpectedEOF) {
		return d, nil
	}
	return d, fmt.Errorf("%s: %w: %w", f.Name(), errNoDescription, err)
}

var errNoDescription = errors.New("no description of a process")

// remove kills the processes that the description of a killed guard identifies, and removes its files. Files that
// cannot be removed, as on a read-only disk, do not matter. An unreadable description belongs to a guard that was
// killed before it started the command.
func (s *Survivor) remove(dir string, f *os.File) error {
	d, err := s.read(f)
	if err != nil && !errors.Is(err, errNoDescription) {
		return err
	}
	if err := checkPrivate(dir); err != nil {
		return err
	}
	killing, cancel := context.WithTimeout(context.Background(), removeTimeout)
	defer cancel()
	if err == nil && !d.KillOrphans(killing) {
		return fmt.Errorf("processes of instance %s, whose guard was killed, have not died yet", s.ID)
	}
	_ = os.Remove(s.path(dir, guard.SocketEnding))
	_ = os.Remove(s.path(dir, guard.DescriptionEnding))
	return nil
}

// takeOver returns the instance of the target that an earlier engine left running, or nil. If that instance has another
// configuration, takeOver terminates it, and then returns errEnded if a request arrived from end in the meantime.
func (d *Driver) takeOver(ctx context.Context, end <-chan time.Duration) (*instance, error) {
	if d.config.AdoptDir == "" {
		return nil, nil
	}
	s, state := findGuard(d.config.AdoptDir, nameOf(d.config.Target))
	switch {
	case state == guardEnded:
		return nil, nil
	case state == guardUnknown:
		return nil, fmt.Errorf("%w: %w", restart.ErrNotTakenOver, s.Err)
	case d.config.Adopt && s.digest == d.digest:
		return d.attach(ctx, s)
	}
	return nil, d.end(ctx, s, end)
}

// End terminates an instance that an earlier engine left running, within its grace period (see Driver.SetStop). It does
// nothing if the instance has ended, or if its target is wanted. When ctx is done, End returns, and the instance's
// guard completes the termination.
func (s Survivor) End(ctx context.Context, dir string, log *slog.Logger, wanted func(target string) bool) error {
	now, state := findGuard(dir, s.name)
	if state == guardEnded || wanted(now.Target) {
		return nil
	}
	if state == guardUnknown {
		return now.Err
	}
	ending, release := context.WithCancelCause(context.WithoutCancel(ctx))
	defer release(nil)
	defer context.AfterFunc(ctx, func() { release(restart.ErrReleased) })()
	return newDriver(Config{Target: now.Target, AdoptDir: dir, Logger: log}).end(ending, now, nil)
}

// end terminates an instance that an earlier engine left running. Requests can only shorten its grace period; if there
// was one, the error is errEnded.
func (d *Driver) end(ctx context.Context, s Survivor, requests <-chan time.Duration) error {
	i, err := d.attach(ctx, s)
	if err != nil {
		return err
	}
	defer i.close()
	i.log.Info("terminating instance of an earlier engine", "instance", s.ID, "signal", cmp.Or(s.stop.Signal, restart.DefaultStopSignal).String(), "grace_period", s.stop.GracePeriod)
	i.stop = func() restart.StopSettings { return s.stop } // without pre_stop, which is not in the description
	i.terminate(s.stop.GracePeriod)
	ctx, cancel := context.WithTimeout(ctx, s.stop.GracePeriod+d.killTimeout)
	defer cancel()
	exit := i.watch(ctx, func(restart.Begun) {}, requests)
	switch {
	case exit.Err == restart.ErrReleased:
		return exit.Err
	case i.gaveUp:
		return fmt.Errorf("instance %s of an earlier engine has not ended: %w", s.ID, ctx.Err())
	}
	i.log.Info("instance of an earlier engine exited", "instance", s.ID, "exit_code", exit.Code)
	if i.asked {
		return errEnded
	}
	return nil
}

// adopt returns the settings by which the guard of an instance that outlives the engine can be found.
func (d *Driver) adopt() (*guard.Adopt, error) {
	dir, err := filepath.Abs(d.config.AdoptDir)
	if err != nil {
		return nil, err
	}
	if err := privateDir(dir); err != nil {
		return nil, err
	}
	stop := d.stopSettings()
	return &guard.Adopt{
		Dir: dir, Name: nameOf(d.config.Target), Target: d.config.Target, Digest: d.digest,
		Interval: d.findInterval, Linger: d.linger, Flush: d.output.flushTimeout, Grace: stop.GracePeriod, StopSignal: syscall.Signal(stop.Signal),
		Log: d.output.guardLog,
	}, nil
}

// privateDir creates a directory that only this user can enter.
func privateDir(dir string) error {
	if err := os.MkdirAll(dir, 0o700); err != nil {
		return err
	}
	return checkPrivate(dir)
}

// checkPrivate returns an error unless the path is a directory that only this user can enter.
func checkPrivate(dir string) error {
	info, err := os.Lstat(dir)
	if err != nil {
		return err
	}
	if !info.IsDir() {
		return fmt.Errorf("%s %w: it is not a directory", dir, errNotOurs)
	}
	if err := private.Check(info); err != nil {
		return fmt.Errorf("%s %w: %w", dir, errNotOurs, err)
	}
	return nil
}

// attach connects to the guard of an instance, which then belongs to this engine.
func (d *Driver) attach(ctx context.Context, s Survivor) (*instance, error) {
	attaching, cancel := context.WithTimeout(ctx, attachTimeout)
	defer cancel()
	socket, err := dialGuard(d.config.AdoptDir, s.name)
	if err != nil {
		return nil, fmt.Errorf("%w: guard of instance %s: %w", restart.ErrNotTakenOver, s.ID, err)
	}
	stop := context.AfterFunc(attaching, func() { _ = socket.SetReadDeadline(time.Now()) })
	i := d.newInstance()
	i.guardConn = &guardConn{socket: socket}
	hello, err := i.receive()
	if !stop() {
		err = cmp.Or(context.Cause(ctx), err, attaching.Err())
	}
	if err != nil {
		i.close()
		if err == restart.ErrReleased {
			return nil, err
		}
		return nil, fmt.Errorf("%w: guard of instance %s does not accept this engine: %w", restart.ErrNotTakenOver, s.ID, err)
	}
	i.run(i.streams, io.MultiReader(bytes.NewReader(hello), socket))
	return i, nil
}

func dialGuard(dir, name string) (*net.UnixConn, error) {
	d, err := os.Open(dir)
	if err != nil {
		return nil, err
	}
	defer d.Close()
	return net.DialUnix("unix", nil, &net.UnixAddr{Net: "unix", Name: guard.InDir(d, name+guard.SocketEnding)})
}

// receive receives the guard's first report and the outputs of the command.
func (c *guardConn) receive() (hello []byte, err error) {
	fd, err := guard.Descriptor(c.socket)
	if err != nil {
		return nil, err
	}
	if c.guardPid, err = guard.Peer(fd); err != nil {
		return nil, err
	}
	hello, rights := make([]byte, maxDescription), make([]byte, unix.CmsgSpace(len(c.outputs)*4))
	n, nrights, _, _, err := c.socket.ReadMsgUnix(hello, rights)
	if err != nil {
		return nil, err
	}
	messages, err := unix.ParseSocketControlMessage(rights[:nrights])
	if err != nil || len(messages) != 1 {
		return nil, errors.Join(errors.New("the guard did not send the outputs of the command"), err)
	}
	fds, err := unix.ParseUnixRights(&messages[0])
	if err != nil {
		return nil, err
	}
	for n, fd := range fds[:min(len(fds), len(c.outputs))] {
		c.outputs[n] = &logfile.Source{File: os.NewFile(uintptr(fd), "output")}
	}
	if len(fds) != len(c.outputs) { // too many open files
		return nil, errors.New("it has not sent both outputs of the command")
	}
	return hello[:n], nil
}
