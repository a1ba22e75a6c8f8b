package daemon

import (
	"errors"
	"log/slog"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	"github.com/spf13/cobra"

	beatprobe "github.com/sonde-probe/sonde/builtin/beat"
	"github.com/sonde-probe/sonde/cmd/engine/internal/accepted"
	"github.com/sonde-probe/sonde/cmd/engine/internal/handlers"
	"github.com/sonde-probe/sonde/config"
	"github.com/sonde-probe/sonde/discover"
	"github.com/sonde-probe/sonde/restart/container"
)

// An unreadable file is rejected like a file with errors.
func TestAStartDoesNotNeedAFileThatCannotBeRead(t *testing.T) {
	const block = "discover \"http\" {\n  url = \"http://127.0.0.1:9\"\n  target \"found\" {\n    address = each.value.address\n  }\n}\n"
	found := map[string]discover.Elements{"http/found": {"10.0.0.7": {Address: "10.0.0.7"}}}
	t.Run("nothing was found", func(t *testing.T) { checkUnreadable(t, "", nil) })
	t.Run("targets were found", func(t *testing.T) { checkUnreadable(t, block, found) })
}

func checkUnreadable(t *testing.T, block string, found map[string]discover.Elements) {
	dir := t.TempDir()
	state, missing, long := filepath.Join(dir, "sonde.state"), filepath.Join(dir, "missing"), filepath.Join(dir, "long.hcl")
	conf := filepath.Join(dir, "config.hcl")
	text := `engine { state = "` + state + `" }` + "\ntarget \"web\" {\n  address = \"127.0.0.1\"\n  probe \"readiness\" {\n    tcp { port = 9 }\n  }\n}\n" + block
	in := &accepted.Inputs{Discovered: found, Sources: []config.Source{{Name: conf, Bytes: []byte(text)}}}
	if err := errors.Join(
		os.WriteFile(conf, []byte(text), 0o600), os.WriteFile(long, make([]byte, config.MaxSourceBytes+1), 0o600), os.WriteFile(state, []byte("state"), 0o600),
		accepted.Kept{Accepted: time.Now(), MaxAge: time.Hour, Inputs: in}.Write(accepted.File(state)),
	); err != nil {
		t.Fatal(err)
	}
	for want, c := range map[string]struct{ paths, flags []string }{
		"missing: no such file":         {[]string{conf, missing}, nil},
		"missing: no such file or dire": {[]string{conf}, []string{"--var-file", missing}},
		"long.hcl: the file is longer":  {[]string{conf, long}, nil},
	} {
		f := &flags{}
		f.inputs.Beats, f.inputs.Runtimes = beatprobe.NewRegistry(), new(container.Runtimes)
		command := &cobra.Command{}
		f.inputs.Register(command)
		if err := command.ParseFlags(c.flags); err != nil {
			t.Fatal(err)
		}
		s := &starter{flags: f, paths: c.paths, plugins: func() *handlers.Plugins {
			p := handlers.NewPlugins(t.Context(), handlers.WaitForNone, handlers.Silent)
			p.Inputs = &accepted.Inputs{}
			return p
		}}
		r := s.load()
		if r.diags.HasErrors() || r.rejected == nil || len(r.config.Set) != 1 {
			t.Errorf("%s: the engine does not start: %v", want, r.diags)
			continue
		}
		if errs, _ := r.rejected.diags.Count(); errs != 1 || !strings.Contains(r.rejected.diags[0].Summary, want) {
			t.Errorf("the files were rejected for %v, want %s", r.rejected.diags, want)
		}
		f.force = true
		if r := s.load(); !r.diags.HasErrors() {
			t.Errorf("%s: --force starts the engine without the file", want)
		}
	}
}

// keeping is a keptFile whose disk hangs until the test releases it, and then returns err.
type keeping struct {
	*keptFile
	disk    chan struct{}
	err     error
	written []string
	log     strings.Builder
}

func newKeeping() *keeping {
	k := &keeping{disk: make(chan struct{})}
	k.keptFile = newKeptFile(func(kept accepted.Kept) error {
		<-k.disk
		k.written = append(k.written, string(kept.Inputs.Sources[0].Bytes))
		return k.err
	}, slog.New(slog.NewTextHandler(&k.log, nil)))
	go k.run()
	return k
}

// accept keeps a configuration with a text.
func (k *keeping) accept(text string) {
	k.replace(accepted.Kept{Inputs: &accepted.Inputs{Sources: []config.Source{{Bytes: []byte(text)}}}})
	synctest.Wait()
}

// took returns the duration of a function call.
func took(f func()) time.Duration {
	began := time.Now()
	f()
	return time.Since(began)
}

func TestADiskThatHangsHoldsUpNothing(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		k := newKeeping()
		for _, text := range []string{"first", "second", "third"} {
			if waited := took(func() { k.accept(text) }); waited != 0 {
				t.Errorf("the engine waits %v for the disk", waited)
			}
		}
		time.Sleep(time.Minute)
		synctest.Wait()
		if n := strings.Count(k.log.String(), "level=WARN"); n != 1 || !strings.Contains(k.log.String(), "does not respond") {
			t.Errorf("logged: %s", k.log.String())
		}
		close(k.disk)
		synctest.Wait()
		if !slices.Equal(k.written, []string{"first", "third"}) {
			t.Errorf("%q were written, want the latest after the first", k.written)
		}
		k.close()
	})
}

func TestTheEndWaitsForTheAcceptedConfiguration(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		k := newKeeping()
		k.accept("first")
		k.accept("second")
		time.AfterFunc(keepTimeout/2, func() { close(k.disk) })
		if waited := took(k.close); waited != keepTimeout/2 || !slices.Equal(k.written, []string{"first", "second"}) {
			t.Errorf("after %v %q were written", waited, k.written)
		}

		k = newKeeping()
		k.accept("first")
		if waited := took(k.close); waited != keepTimeout || !strings.Contains(k.log.String(), "accepted configuration not saved") {
			t.Errorf("the end waits %v for a disk that hangs: %s", waited, k.log.String())
		}
		close(k.disk)
	})
}

func TestAConfigurationThatIsNotKeptIsAWarning(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		k := newKeeping()
		close(k.disk)
		k.err = errors.New("no space")
		k.accept("first")
		k.err = nil
		k.accept("second")
		k.close()
		if n := strings.Count(k.log.String(), "level=WARN"); n != 1 || !strings.Contains(k.log.String(), "no space") || len(k.written) != 2 {
			t.Errorf("%q were written, with %d warnings: %s", k.written, n, k.log.String())
		}
	})
}
