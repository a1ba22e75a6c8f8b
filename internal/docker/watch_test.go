package docker_test

import (
	"context"
	"fmt"
	"os"
	"syscall"
	"testing"
	"time"

	"github.com/sonde-probe/sonde/internal/docker"
	"github.com/sonde-probe/sonde/internal/wake"
	"github.com/sonde-probe/sonde/tests/dockertest"
	"github.com/sonde-probe/sonde/tests/testsync"
)

// watch runs a watch until the test ends.
func watch(t *testing.T, r *dockertest.Runtime) *docker.Watch {
	t.Helper()
	w := docker.NewWatch(r.Client)
	ctx, cancel := context.WithCancel(context.Background())
	ended := make(chan struct{})
	go func() {
		defer close(ended)
		_ = w.Run(ctx)
	}()
	t.Cleanup(func() {
		cancel()
		<-ended
	})
	return w
}

// follow returns a function that waits until the view of a watch meets a condition.
func follow(t *testing.T, w *docker.Watch, s docker.Selector) func(what string, is func(docker.View) bool) (docker.View, time.Time) {
	changed := wake.New()
	f := w.Follow(s, changed.Set)
	t.Cleanup(f.Close)
	return func(what string, is func(docker.View) bool) (docker.View, time.Time) {
		t.Helper()
		timeout := time.After(30 * time.Second)
		for {
			if v := f.View(); is(v) {
				return v, time.Now()
			}
			select {
			case <-changed:
			case <-timeout:
				t.Fatalf("no %s: %+v", what, f.View())
			}
		}
	}
}

func isRunning(v docker.View) bool {
	return v.Lost == nil && v.IsListed && len(v.Containers) == 1 && v.Containers[0].State.Running
}

func hasExited(v docker.View) bool {
	return v.Lost == nil && len(v.Containers) == 1 && !v.Containers[0].State.Running && !v.Containers[0].Exit.StartedAt.IsZero()
}

func TestAWatchSeesExitsAndStarts(t *testing.T) {
	dockertest.Each(t, func(t *testing.T, r *dockertest.Runtime) {
		w := watch(t, r)
		await := follow(t, w, docker.Selector{Labels: map[string]string{"app": "web"}})
		_, _ = await("empty list", func(v docker.View) bool { return v.Lost == nil && v.IsListed && len(v.Containers) == 0 })
		id := r.ContainerOf(t, "web", docker.Spec{Cmd: []string{"crash", "0.5", "3"}, Labels: map[string]string{"app": "web"}})
		first, _ := await("start", isRunning)
		exited, at := await("exit", hasExited)
		c := exited.Containers[0]
		if c.ID != id || c.Exit.Code != 3 || c.Exit.OOMKilled || !c.Exit.StartedAt.Equal(first.Containers[0].State.StartedAt) {
			t.Errorf("exited: %+v", c)
		}
		t.Logf("%v after the exit", at.Sub(first.Containers[0].State.StartedAt)-500*time.Millisecond)
		if err := r.Client.Start(t.Context(), id); err != nil {
			t.Fatal(err)
		}
		again, _ := await("second start", isRunning)
		if again.Containers[0].IsSame(first.Containers[0].Container) {
			t.Error("the second instance is the same as the first one")
		}
		if err := r.Remove(t.Context(), id, true); err != nil {
			t.Fatal(err)
		}
		_, _ = await("removal", func(v docker.View) bool { return len(v.Containers) == 0 })
	})
}

func TestAWatchIsLostWithTheRuntimeAndRecovers(t *testing.T) {
	dockertest.Each(t, func(t *testing.T, r *dockertest.Runtime) {
		r.Container(t, "web", "sleep", "1000")
		r.Container(t, "crashes", "crash", "5", "4")
		w := watch(t, r)
		web, crashes := follow(t, w, docker.Selector{Name: "web"}), follow(t, w, docker.Selector{Name: "crashes"})
		before, _ := web("start", isRunning)
		_, _ = crashes("start", isRunning)
		isLost := func(v docker.View) bool { return v.Lost != nil }
		recovers := func(how string) {
			t.Helper()
			after, _ := web("recovery "+how, isRunning)
			if !after.Containers[0].IsSame(before.Containers[0].Container) {
				t.Errorf("%s: another instance: %+v", how, after.Containers[0])
			}
		}
		r.Stop(t)
		v, _ := web("loss", isLost)
		t.Log(v.Lost)
		if len(v.Containers) != 1 {
			t.Errorf("lost: %+v", v)
		}
		testsync.Until(t, "end of the other container", func() bool { return time.Since(before.Containers[0].State.StartedAt) > 6*time.Second })
		r.Start(t)
		recovers("after a restart")
		v, _ = crashes("exit", hasExited)
		if v.Containers[0].Exit.Code != 4 {
			t.Errorf("exit while the runtime was away: %+v", v.Containers[0])
		}

		away := r.Socket + ".away"
		if err := os.Rename(r.Socket, away); err != nil {
			t.Fatal(err)
		}
		v, _ = web("loss of the socket", isLost)
		t.Log(v.Lost)
		if err := os.Rename(away, r.Socket); err != nil {
			t.Fatal(err)
		}
		recovers("of the socket")

		r.Signal(t, syscall.SIGSTOP)
		v, _ = web("loss by a stall", isLost)
		t.Log(v.Lost)
		r.Signal(t, syscall.SIGCONT)
		recovers("of a stall")
	})
}

// Docker Engine misses about one in thirty such kills on a busy machine: containerd's shim reads it from the control
// group, which may have been removed before. So the test tries several containers; each must be reported as exited, not
// as stopped.
func TestAContainerThatIsKilledForMemoryIsKnownAsSuch(t *testing.T) {
	r := dockertest.Docker(t) // Podman 4.3 with runc does not say it
	w := watch(t, r)
	for i := range 5 {
		name := fmt.Sprintf("eats%d", i)
		await := follow(t, w, docker.Selector{Name: name})
		_, _ = await("empty list", func(v docker.View) bool { return v.Lost == nil && v.IsListed })
		spec := docker.Spec{Cmd: []string{"eat", "200"}}
		spec.HostConfig.Memory = 32 << 20
		id := r.ContainerOf(t, name, spec)
		v, _ := await("exit", hasExited)
		if x := v.Containers[0].Exit; x.Code != 137 || x.Killed {
			t.Errorf("exit: %+v", x)
		}
		if r.Inspect(t, id).State.OOMKilled {
			_, _ = await("kill for memory", func(v docker.View) bool { return v.Containers[0].Exit.OOMKilled })
			return
		}
	}
	t.Error("the runtime has not said of one of five containers that it was killed for memory")
}

// Docker Engine says of a container between an exit and the restart by its policy that it runs, with the start of the
// instance that exited.
func TestAContainerThatWaitsForItsRestartDoesNotRun(t *testing.T) {
	r := dockertest.Docker(t)
	spec := docker.Spec{Cmd: []string{"crash", "0", "1"}}
	spec.HostConfig.RestartPolicy.Name = "always"
	id := r.ContainerOf(t, "crashes", spec)
	testsync.Until(t, "a container that waits for its restart", func() bool {
		c := r.Inspect(t, id)
		if c.State.Status == "restarting" && c.State.Running {
			t.Fatalf("it runs: %+v", c.State)
		}
		return c.State.Status == "restarting"
	})
}

// A signal on which a program opens its log files again does not make a later crash a stop by hand.
func TestASignalThatStopsNothingIsNoStop(t *testing.T) {
	r := dockertest.Docker(t) // Podman does not name the signal
	await := follow(t, watch(t, r), docker.Selector{Name: "web"})
	for signal, isStop := range map[string]bool{"SIGWINCH": false, "SIGINT": true} {
		id := r.Container(t, "web", "crash", "2", "1")
		_, _ = await("container", isRunning)
		if err := r.Kill(t.Context(), id, signal); err != nil {
			t.Fatal(err)
		}
		v, _ := await("exit", hasExited)
		if x := v.Containers[0].Exit; x.Killed != isStop {
			t.Errorf("%s: %+v", signal, x)
		}
		if err := r.Remove(t.Context(), id, true); err != nil {
			t.Fatal(err)
		}
		_, _ = await("removal", func(v docker.View) bool { return len(v.Containers) == 0 })
	}
}
