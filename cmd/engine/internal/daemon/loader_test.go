package daemon

import (
	"context"
	"errors"
	"io"
	"log/slog"
	"os"
	"path/filepath"
	"reflect"
	"slices"
	"sync"
	"syscall"
	"testing"

	"github.com/sonde-probe/sonde/api"
	"github.com/sonde-probe/sonde/cmd/engine/internal/accepted"
	"github.com/sonde-probe/sonde/cmd/engine/internal/cli"
	"github.com/sonde-probe/sonde/cmd/engine/internal/handlers"
	"github.com/sonde-probe/sonde/discover"
	"github.com/sonde-probe/sonde/tests/testsync"
)

// slowReader is a daemon whose configuration is a pipe, so that a reload blocks until the test writes to the pipe.
type slowReader struct {
	*daemon
	t      *testing.T
	pipe   string
	cancel context.CancelFunc
	ended  chan error
}

func newSlowReader(t *testing.T) *slowReader {
	t.Helper()
	pipe := filepath.Join(t.TempDir(), "sonde.hcl")
	if err := syscall.Mkfifo(pipe, 0o600); err != nil {
		t.Fatal(err)
	}
	d := &daemon{parts: parts{targets: &targets{}, finder: discover.NewFinder(discover.FinderConfig{})}, flags: &flags{}, paths: []string{pipe}, log: slog.New(slog.DiscardHandler), jobs: make(chan *job), queue: cli.NewLogQueue(io.Discard)}
	d.signals = &signals{reload: make(chan os.Signal, 1), stop: make(chan os.Signal, 1)}
	d.plugins.Store(handlers.NewPlugins(t.Context(), handlers.WaitForNone, handlers.Silent))
	ctx, cancel := context.WithCancel(t.Context())
	s := &slowReader{daemon: d, t: t, pipe: pipe, cancel: cancel, ended: make(chan error, 1)}
	go func() { s.ended <- d.handleSignals(ctx, func() {}) }()
	t.Cleanup(func() {
		cancel()
		<-s.ended
		d.queue.Close(testsync.Timeout)
	})
	return s
}

// ask requests a reload like an API client, and returns a channel for its result.
func (s *slowReader) ask(ctx context.Context) <-chan reply {
	done := make(chan reply, 1)
	go func() {
		r, err := s.requestReload(ctx, false)
		done <- reply{reload: r, err: err}
	}()
	return done
}

// answer writes a text to the next reload that reads the configuration.
func (s *slowReader) answer(text string) {
	s.t.Helper()
	f, err := os.OpenFile(s.pipe, os.O_WRONLY, 0) // waits for the reader
	if err == nil {
		_, err = f.WriteString(text)
		err = errors.Join(err, f.Close())
	}
	if err != nil {
		s.t.Fatal(err)
	}
}

func (s *slowReader) receive(from <-chan reply) reply {
	s.t.Helper()
	return testsync.Receive(s.t, "the reply", from)
}

// The files may have changed after a reload has read them.
func TestWhatIsAskedForDuringAReloadIsAReloadOfItsOwn(t *testing.T) {
	s := newSlowReader(t)
	first := s.ask(t.Context())
	w, err := os.OpenFile(s.pipe, os.O_WRONLY, 0) // the first reload is reading
	if err != nil {
		t.Fatal(err)
	}
	second := s.ask(t.Context())
	s.signals.reload <- syscall.SIGHUP
	if _, err := w.WriteString("engine {"); err != nil {
		t.Fatal(err)
	}
	w.Close()
	r := s.receive(first)
	if r.err != nil || r.reload.Error == nil {
		t.Errorf("first: %+v", r)
	}
	triggers := []string{}
	for last := r.reload.At; len(triggers) < 2; last = s.reloads().At { // one of each, in any order
		s.answer("engine { a = 1 }")
		testsync.Until(t, "the end of a reload", func() bool { return s.reloads().At != last })
		triggers = append(triggers, s.reloads().Trigger)
	}
	if r := s.receive(second); r.err != nil || r.reload.Error == nil {
		t.Errorf("second: %+v", r)
	}
	if slices.Sort(triggers); !slices.Equal(triggers, slices.Sorted(slices.Values([]string{byRequest, bySignal}))) {
		t.Errorf("the reloads were by %v", triggers)
	}
}

func TestAClientThatGoesAwayDoesNotHoldUpReloads(t *testing.T) {
	s := newSlowReader(t)
	ctx, gone := context.WithCancel(t.Context())
	first := s.ask(ctx)
	w, err := os.OpenFile(s.pipe, os.O_WRONLY, 0)
	if err != nil {
		t.Fatal(err)
	}
	gone()
	if r := s.receive(first); !errors.Is(r.err, context.Canceled) {
		t.Errorf("the client that has gone: %+v", r)
	}
	second := s.ask(t.Context())
	if _, err := w.WriteString("engine {"); err != nil { // completes the client's reload
		t.Fatal(err)
	}
	w.Close()
	testsync.Until(t, "the end of the reload", func() bool { return s.reloads().Error != nil })
	s.answer("engine {")
	if r := s.receive(second); r.err != nil || r.reload.Error == nil {
		t.Errorf("the next client: %+v", r)
	}
}

// A revision that is no longer wanted must not block later reloads.
func TestAWithdrawnRevisionIsNotLoaded(t *testing.T) {
	s := newSlowReader(t)
	first := s.ask(t.Context())
	w, err := os.OpenFile(s.pipe, os.O_WRONLY, 0) // the first reload is reading
	if err != nil {
		t.Fatal(err)
	}
	ctx, withdraw := context.WithCancel(t.Context())
	var waiting sync.WaitGroup
	for range 3 {
		waiting.Go(func() {
			s.jobs.request(ctx, &job{trigger: byPush, pushed: &accepted.Inputs{}})
		})
	}
	withdraw()
	waiting.Wait()
	second := s.ask(t.Context())
	if _, err := w.WriteString("engine {"); err != nil {
		t.Fatal(err)
	}
	w.Close()
	s.receive(first)
	s.answer("engine {") // for the one remaining load
	if r := s.receive(second); r.err != nil || r.reload.Error == nil {
		t.Errorf("the reload after the revisions: %+v", r)
	}
}

func TestReloadsAreRefusedWhileTheEngineStops(t *testing.T) {
	s := newSlowReader(t)
	first := s.ask(t.Context())
	w, err := os.OpenFile(s.pipe, os.O_WRONLY, 0)
	if err != nil {
		t.Fatal(err)
	}
	defer w.Close()
	s.signals.stop <- syscall.SIGTERM
	if r := s.receive(first); !errors.Is(r.err, errStopping) {
		t.Errorf("under way: %+v", r)
	}
	if r := s.receive(s.ask(t.Context())); !errors.Is(r.err, errStopping) {
		t.Errorf("afterwards: %+v", r)
	}
	if got := s.reloads(); !reflect.DeepEqual(got, api.Reload{}) {
		t.Errorf("a reload has ended: %+v", got)
	}
}

// The watch continues with the inputs of a reload even if they could not be read.
func TestAReloadThatCannotReadItsFilesHasInputs(t *testing.T) {
	p := handlers.NewPlugins(t.Context(), handlers.WaitForNone, handlers.Silent)
	if _, diags := new(flags).load([]string{t.TempDir()}, nil, nil, p); !diags.HasErrors() || p.Inputs == nil {
		t.Errorf("%v, and the inputs are %v", diags, p.Inputs)
	}
}
