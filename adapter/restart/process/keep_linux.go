package process

import (
	"encoding/json"
	"io"
	"net"
	"os"
	"path/filepath"
	"sync"
	"time"

	"golang.org/x/sys/unix"
)

// keeper is the part of a guard whose command outlives the engine: it holds the outputs
// of the command, and lets one engine after another attach to them.
type keeper struct {
	adopt    adopt
	dir      *os.File
	listener *net.UnixListener
	outputs  [2]*os.File // the read ends
	command  [2]*os.File // the write ends, until the command has them
	orders   chan order
	orphaned chan struct{} // closed when the engine that has started the guard has let it go

	connMu  sync.Mutex // guards conn
	changed sync.Cond  // of connMu: conn has changed
	conn    *net.UnixConn
}

// newKeeper opens the socket and the outputs. After an error the caller calls remove.
func newKeeper(a adopt) (k *keeper, err error) {
	k = &keeper{adopt: a, orders: make(chan order), orphaned: make(chan struct{})}
	k.changed.L = &k.connMu
	if k.dir, err = os.Open(a.Dir); err != nil {
		return k, err
	}
	if k.listener, err = net.ListenUnix("unix", &net.UnixAddr{Net: "unix", Name: inDir(k.dir, a.Name+socketEnding)}); err != nil {
		return k, err
	}
	for n := range k.outputs {
		if k.outputs[n], k.command[n], err = os.Pipe(); err != nil {
			return k, err
		}
	}
	return k, nil
}

// describe writes the description of the running command.
func (k *keeper) describe(pid int, id string) error {
	for _, w := range k.command {
		_ = w.Close()
	}
	text, err := json.Marshal(Survivor{
		Target: k.adopt.Target, ID: id, Digest: k.adopt.Digest, Started: time.Now(),
		Pid: pid, Guard: os.Getpid(), GuardStart: startTime(os.Getpid()),
	})
	if err != nil {
		return err
	}
	path := filepath.Join(k.adopt.Dir, k.adopt.Name+descriptionEnding)
	hidden := filepath.Join(k.adopt.Dir, "."+k.adopt.Name)
	if err := os.WriteFile(hidden, text, 0o600); err != nil {
		return err
	}
	return os.Rename(hidden, path)
}

// remove removes the files.
func (k *keeper) remove() {
	_ = os.Remove(filepath.Join(k.adopt.Dir, k.adopt.Name+descriptionEnding))
	_ = os.Remove(filepath.Join(k.adopt.Dir, k.adopt.Name+socketEnding))
}

// serve lets engines attach, one after another, and passes their orders on. Between them
// it reads the outputs itself, so that the command never waits for a reader.
func (k *keeper) serve(hello report) {
	for {
		stop := k.discard()
		conn, err := k.listener.AcceptUnix()
		stop()
		if err != nil {
			time.Sleep(time.Second) // too many open files, for example
			continue
		}
		if k.greet(conn, hello) == nil {
			k.attach(conn)
			for decoder := json.NewDecoder(conn); ; {
				var o order
				if decoder.Decode(&o) != nil {
					break
				}
				k.orders <- o
			}
			k.attach(nil)
		}
		_ = conn.Close()
	}
}

// discard reads the outputs until stop is called.
func (k *keeper) discard() (stop func()) {
	var readers sync.WaitGroup
	stopped := make(chan struct{})
	for _, output := range k.outputs {
		_ = output.SetReadDeadline(time.Time{})
		readers.Go(func() {
			select {
			case <-k.orphaned:
				_, _ = io.Copy(io.Discard, output)
			case <-stopped:
			}
		})
	}
	return func() {
		close(stopped)
		for _, output := range k.outputs {
			_ = output.SetReadDeadline(time.Now())
		}
		readers.Wait()
	}
}

// greet sends an engine the first report and the outputs.
func (k *keeper) greet(conn *net.UnixConn, hello report) error {
	if _, err := peerOf(conn); err != nil {
		return err
	}
	text, err := json.Marshal(hello)
	if err != nil {
		return err
	}
	var fds []int
	for _, output := range k.outputs {
		raw, err := output.SyscallConn() // File.Fd would make the pipe block
		if err != nil {
			return err
		}
		if err := raw.Control(func(fd uintptr) { fds = append(fds, int(fd)) }); err != nil {
			return err
		}
	}
	_, _, err = conn.WriteMsgUnix(append(text, '\n'), unix.UnixRights(fds...), nil)
	return err
}

func (k *keeper) attach(conn *net.UnixConn) {
	k.connMu.Lock()
	defer k.connMu.Unlock()
	k.conn = conn
	k.changed.Broadcast()
}

// finish sends the last report to the engine that is attached, or else to the next one,
// and removes the files.
func (k *keeper) finish(last report) {
	k.connMu.Lock()
	defer k.connMu.Unlock()
	for k.conn == nil {
		k.changed.Wait()
	}
	k.remove()
	_ = json.NewEncoder(k.conn).Encode(last) // after an error the next engine starts a new instance
}
