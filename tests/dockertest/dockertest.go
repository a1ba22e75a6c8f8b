// Package dockertest starts real container runtimes for tests, Docker Engine and Podman, each with its own data and an image that
// is built from the program subject.
package dockertest

import (
	"archive/tar"
	"bytes"
	"cmp"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"net"
	"net/http"
	"net/url"
	"os"
	"os/exec"
	"path/filepath"
	goruntime "runtime"
	"slices"
	"strconv"
	"strings"
	"sync"
	"syscall"
	"testing"
	"time"

	"github.com/sonde-probe/sonde/internal/docker"
	"github.com/sonde-probe/sonde/tests/testsync"
	"github.com/sonde-probe/sonde/tests/tier"
)

// Image is the name of the image, with the entry point /subject.
const Image = "localhost/subject:1"

// Runtime is a container runtime of a test.
type Runtime struct {
	Name   string // docker or podman
	Socket string
	*docker.Client

	dir     string
	command []string
	env     []string
	user    *syscall.Credential // nil: root
	process *exec.Cmd
	log     *os.File
}

// Each runs a test with each runtime, in parallel with other tests.
func Each(t *testing.T, test func(t *testing.T, r *Runtime)) {
	t.Helper()
	tier.CI(t)
	t.Parallel()
	each(t, func(t *testing.T, r *Runtime) {
		t.Parallel()
		test(t, r)
	})
}

// EachAlone runs a test with each runtime, not in parallel with other tests.
func EachAlone(t *testing.T, test func(t *testing.T, r *Runtime)) {
	t.Helper()
	tier.CI(t)
	each(t, test)
}

func each(t *testing.T, test func(t *testing.T, r *Runtime)) {
	for name, start := range map[string]func(testing.TB) *Runtime{"docker": Docker, "podman": Podman} {
		t.Run(name, func(t *testing.T) { test(t, start(t)) })
	}
}

// Docker starts a Docker Engine without its own networks. Its containers continue without it.
func Docker(t testing.TB) *Runtime {
	return newDocker(t).begin(t)
}

// ApartAddress is the address of the machine that DockerApart simulates.
const ApartAddress = "10.213.48.2"

// DockerApart is Docker in a separate network, as on another machine: only ApartAddress is reachable from this one.
func DockerApart(t testing.TB) *Runtime {
	r := newDocker(t)
	needs(t, "unshare", "ip", "nsenter")
	r.command = append([]string{"unshare", "--net"}, r.command...)
	r.begin(t)
	pid := strconv.Itoa(r.process.Process.Pid)
	inside := []string{"nsenter", "--net", "--target", pid, "ip"}
	for _, command := range [][]string{
		{"ip", "link", "add", "sonde-test1", "type", "veth", "peer", "name", "outside", "netns", pid},
		{"ip", "address", "add", "10.213.48.1/30", "dev", "sonde-test1"}, {"ip", "link", "set", "sonde-test1", "up"},
		append(inside, "address", "add", ApartAddress+"/30", "dev", "outside"), append(inside, "link", "set", "outside", "up"), append(inside, "link", "set", "lo", "up"),
	} {
		if text, err := exec.Command(command[0], command[1:]...).CombinedOutput(); err != nil {
			t.Fatalf("%v: %v: %s", command, err, text)
		}
	}
	return r
}

// DockerIn is Docker whose processes and containers are in a cgroup v1 control group; group is a path below /sys/fs/cgroup/cpuacct.
func DockerIn(t testing.TB, group string) *Runtime {
	r := newDocker(t)
	r.command = append(r.command, "--cgroup-parent", "/"+group)
	r.command = append([]string{"sh", "-c", `echo $$ >"$0" && exec "$@"`, filepath.Join("/sys/fs/cgroup/cpuacct", group, "cgroup.procs")}, r.command...)
	return r.begin(t)
}

func newDocker(t testing.TB) *Runtime {
	needs(t, "dockerd", "containerd", "runc")
	r := &Runtime{Name: "docker", dir: testsync.SocketDir(t)}
	r.Socket = filepath.Join(r.dir, "docker.sock")
	r.command = []string{
		"dockerd", "--host", "unix://" + r.Socket, "--data-root", r.dir + "/data", "--exec-root", r.dir + "/exec", "--pidfile", r.dir + "/pid",
		"--bridge=none", "--iptables=false", "--ip6tables=false", "--ip-forward=false", "--ip-masq=false", "--storage-driver=overlay2",
		"--default-ulimit", "nofile=4096:4096", "--live-restore",
	}
	return r
}

// Podman starts the API service of Podman. Its containers use the network of the machine.
func Podman(t testing.TB) *Runtime {
	r := newPodman(t, "docker.sock")
	r.write(t, "storage.conf", "[storage]\ndriver = \"overlay\"\nrunroot = \"DIR/run\"\ngraphroot = \"DIR/graph\"\n")
	return r.begin(t)
}

// Nobody is the user and the group of rootless Podman.
const Nobody = 65534

// RootlessPodman is Podman of the user Nobody, whose XDG_RUNTIME_DIR is also returned.
func RootlessPodman(t testing.TB) (r *Runtime, runtimeDir string) {
	r = newPodman(t, "podman/podman.sock") // where clients of the user look for it
	r.user = &syscall.Credential{Uid: Nobody, Gid: Nobody}
	r.env = append(r.env, "HOME="+r.dir, "XDG_RUNTIME_DIR="+r.dir)
	// The user has no range of subordinate users: all files of images belong to it.
	r.write(t, "storage.conf", "[storage]\ndriver = \"vfs\"\nrunroot = \"DIR/run\"\ngraphroot = \"DIR/graph\"\n[storage.options.vfs]\nignore_chown_errors = \"true\"\n")
	err := os.Mkdir(filepath.Join(r.dir, "podman"), 0o700)
	for _, name := range []string{"", "podman", "storage.conf", "containers.conf"} {
		err = errors.Join(err, os.Chown(filepath.Join(r.dir, name), Nobody, Nobody))
	}
	if err != nil {
		t.Fatal(err)
	}
	return r.begin(t), r.dir
}

// newPodman returns Podman without storage.conf. socket is relative to its folder.
func newPodman(t testing.TB, socket string) *Runtime {
	needs(t, "podman", "conmon", "runc")
	r := &Runtime{Name: "podman", dir: testsync.SocketDir(t)}
	r.Socket = filepath.Join(r.dir, socket)
	// Some machines do not let root raise limits; Podman would use the soft limits as hard limits.
	r.write(t, "containers.conf", `[containers]
default_ulimits = ["nofile=4096:4096", "nproc=4096:4096"]
netns = "host"
cgroups = "enabled"
log_driver = "k8s-file"
[engine]
cgroup_manager = "cgroupfs"
events_logger = "file"
runtime = "runc"
tmp_dir = "DIR/tmp"
volume_path = "DIR/volumes"
`)
	r.env = append(os.Environ(), "CONTAINERS_STORAGE_CONF="+r.dir+"/storage.conf", "CONTAINERS_CONF="+r.dir+"/containers.conf")
	r.command = []string{"podman", "system", "service", "--time=0", "unix://" + r.Socket}
	return r
}

func needs(t testing.TB, programs ...string) {
	t.Helper()
	tier.Needs(t, programs...)
	if goruntime.GOOS != "linux" || os.Geteuid() != 0 {
		t.Skip("only root can start a container runtime of its own")
	}
}

func (r *Runtime) write(t testing.TB, name, text string) {
	t.Helper()
	if err := os.WriteFile(filepath.Join(r.dir, name), []byte(strings.ReplaceAll(text, "DIR", r.dir)), 0o600); err != nil {
		t.Fatal(err)
	}
}

func (r *Runtime) begin(t testing.TB) *Runtime {
	t.Helper()
	var err error
	if r.log, err = os.Create(filepath.Join(r.dir, "log")); err != nil {
		t.Fatal(err)
	}
	r.Client = docker.New(r.Socket)
	t.Cleanup(func() { r.end(t) })
	r.Start(t)
	r.importSubject(t)
	return r
}

// Start starts the daemon, and returns when it responds.
func (r *Runtime) Start(t testing.TB) {
	t.Helper()
	r.process = exec.Command(r.command[0], r.command[1:]...)
	r.process.Env, r.process.Stdout, r.process.Stderr = r.env, r.log, r.log
	r.process.Dir, r.process.SysProcAttr = r.dir, attributes()
	r.process.SysProcAttr.Credential = r.user
	if err := r.process.Start(); err != nil {
		t.Fatal(err)
	}
	testsync.Until(t, r.Name+" to answer", func() bool { return r.Client.Ping(context.Background()) == nil })
}

// Signal sends a signal to the daemon, such as SIGSTOP.
func (r *Runtime) Signal(t testing.TB, s syscall.Signal) {
	t.Helper()
	if err := r.process.Process.Signal(s); err != nil {
		t.Fatal(err)
	}
}

// Stop stops the daemon; containers continue.
func (r *Runtime) Stop(t testing.TB) {
	t.Helper()
	r.Signal(t, syscall.SIGTERM)
	_ = r.process.Wait() // the error only names the signal
}

// end removes all containers, stops the daemon, and unmounts the file systems that it has left.
func (r *Runtime) end(t testing.TB) {
	_ = r.process.Process.Signal(syscall.SIGCONT)
	ctx, cancel := context.WithTimeout(context.Background(), testsync.Timeout)
	defer cancel()
	if r.process.ProcessState != nil {
		r.Start(t)
	}
	containers, _ := r.List(ctx, nil)
	var removed sync.WaitGroup
	for _, c := range containers {
		removed.Go(func() {
			if err := r.Remove(ctx, c.ID, true); err != nil {
				t.Logf("container %v is not removed: %v", c.Names, err)
			}
		})
	}
	removed.Wait()
	r.Stop(t)
	if t.Failed() {
		text, _ := os.ReadFile(r.log.Name())
		t.Logf("log of %s:\n%s", r.Name, text[max(0, len(text)-4<<10):])
	}
	_ = r.log.Close()
	r.killRest()
	mounts, _ := os.ReadFile("/proc/self/mounts")
	for line := range strings.Lines(string(mounts)) {
		if fields := strings.Fields(line); len(fields) > 1 && strings.HasPrefix(fields[1], r.dir+"/") {
			unmount(fields[1])
		}
	}
}

// killRest kills the processes that a daemon has left, which name its directory in their arguments or environment: Podman leaves
// processes that wait for five minutes after each command, and would then create the directory again, and rootless Podman leaves
// one that keeps its namespaces.
func (r *Runtime) killRest() {
	files, _ := filepath.Glob("/proc/[1-9]*/cmdline")
	for _, file := range files {
		line, _ := os.ReadFile(file)
		env, _ := os.ReadFile(filepath.Join(filepath.Dir(file), "environ"))
		if pid, err := strconv.Atoi(filepath.Base(filepath.Dir(file))); err == nil && pid != os.Getpid() && bytes.Contains(append(line, env...), []byte(r.dir+"/")) {
			_ = syscall.Kill(pid, syscall.SIGKILL)
		}
	}
}

// Subject returns the program subject, which is built only once.
var Subject = sync.OnceValues(func() ([]byte, error) {
	dir, err := os.MkdirTemp("", "subject")
	if err != nil {
		return nil, err
	}
	defer os.RemoveAll(dir)
	build := exec.Command("go", "build", "-trimpath", "-ldflags=-s -w", "-o", dir, "github.com/sonde-probe/sonde/tests/dockertest/subject")
	build.Env = append(os.Environ(), "CGO_ENABLED=0")
	if text, err := build.CombinedOutput(); err != nil {
		return nil, fmt.Errorf("%w: %s", err, text)
	}
	return os.ReadFile(filepath.Join(dir, "subject"))
})

// importSubject creates the image.
func (r *Runtime) importSubject(t testing.TB) {
	t.Helper()
	program, err := Subject()
	if err != nil {
		t.Fatal(err)
	}
	r.importImage(t, Image, map[string][]byte{"subject": program}, `ENTRYPOINT ["/subject"]`)
}

// ImportShell creates an image with a shell and some programs of this machine, like busybox.
func (r *Runtime) ImportShell(t testing.TB, image string) {
	t.Helper()
	tier.Needs(t, "ldd")
	files := map[string][]byte{}
	add := func(path, as string) {
		text, err := os.ReadFile(path)
		if err != nil {
			t.Fatal(err)
		}
		files[strings.TrimPrefix(as, "/")] = text
	}
	for _, name := range []string{"sh", "cat", "rm", "sleep", "touch"} {
		path, err := exec.LookPath(name)
		if err != nil {
			t.Skip(err)
		}
		add(path, "/bin/"+name)
		libraries, _ := exec.Command("ldd", path).Output() // an error: the program is static
		for word := range strings.FieldsSeq(string(libraries)) {
			if strings.HasPrefix(word, "/") {
				add(word, word)
			}
		}
	}
	r.importImage(t, image, files)
}

// importImage creates an image from programs, with changes as instructions of a Dockerfile.
func (r *Runtime) importImage(t testing.TB, image string, programs map[string][]byte, changes ...string) {
	t.Helper()
	var files bytes.Buffer
	archive := tar.NewWriter(&files)
	err := archive.WriteHeader(&tar.Header{Name: "tmp/", Mode: 0o777, Typeflag: tar.TypeDir})
	for name, program := range programs {
		err = errors.Join(err, archive.WriteHeader(&tar.Header{Name: name, Mode: 0o755, Size: int64(len(program))}))
		_, failed := archive.Write(program)
		err = errors.Join(err, failed)
	}
	if err := errors.Join(err, archive.Close()); err != nil {
		t.Fatal(err)
	}
	name, tag, _ := strings.Cut(image, ":")
	path, query := "/v1.41/images/create", url.Values{"fromSrc": {"-"}, "repo": {name}, "tag": {tag}, "changes": changes}
	if r.Name == "podman" { // its version of this call has no parameter for the name
		path, query = "/v4.0.0/libpod/images/import", url.Values{"reference": {image}, "changes": changes}
	}
	res, err := r.http().Post("http://runtime"+path+"?"+query.Encode(), "application/x-tar", &files)
	if err != nil {
		t.Fatal(err)
	}
	defer res.Body.Close()
	var answer bytes.Buffer
	_, _ = answer.ReadFrom(res.Body)
	if res.StatusCode != http.StatusOK || strings.Contains(answer.String(), `"error"`) {
		t.Fatalf("import: %s %s", res.Status, answer.String())
	}
}

// Container creates and starts a container with arguments for subject, and returns its ID.
func (r *Runtime) Container(t testing.TB, name string, arguments ...string) string {
	t.Helper()
	return r.ContainerOf(t, name, docker.Spec{Cmd: arguments})
}

// ContainerOf is Container with more settings.
func (r *Runtime) ContainerOf(t testing.TB, name string, s docker.Spec) string {
	t.Helper()
	ctx, cancel := context.WithTimeout(t.Context(), time.Minute)
	defer cancel()
	s.Image, s.HostConfig.NetworkMode = Image, cmp.Or(s.HostConfig.NetworkMode, "host")
	id, err := r.Create(ctx, name, s)
	if err == nil {
		err = r.Client.Start(ctx, id)
	}
	if err != nil {
		t.Fatal(err)
	}
	return id
}

// Post makes a call that docker.Client lacks, with a JSON body.
func (r *Runtime) Post(t testing.TB, path, body string) {
	t.Helper()
	res, err := r.http().Post("http://runtime/v1.41"+path, "application/json", strings.NewReader(body))
	if err != nil {
		t.Fatal(err)
	}
	defer res.Body.Close()
	if res.StatusCode >= 300 {
		var answer bytes.Buffer
		_, _ = answer.ReadFrom(res.Body)
		t.Fatalf("%s: %s %s", path, res.Status, answer.String())
	}
}

// DeleteNetwork removes a network after all containers.
func (r *Runtime) DeleteNetwork(t testing.TB, name string) {
	t.Helper()
	containers, _ := r.List(context.Background(), nil)
	for _, c := range containers {
		_ = r.Remove(context.Background(), c.ID, true)
	}
	req, err := http.NewRequest(http.MethodDelete, "http://runtime/v1.41/networks/"+name, nil)
	if err != nil {
		t.Fatal(err)
	}
	if res, err := r.http().Do(req); err != nil || res.StatusCode >= 300 {
		t.Errorf("network not removed: %v %v", res, err)
	}
}

// Events returns the actions on containers since a time by container ID, according to the runtime's own log. It waits until the log
// has the start of the containers in started: Podman writes it with a delay.
func (r *Runtime) Events(t testing.TB, since time.Time, started ...string) (actions map[string][]string) {
	t.Helper()
	testsync.Until(t, "the log to say that a container has started", func() bool {
		actions = r.events(t, since)
		return !slices.ContainsFunc(started, func(id string) bool { return !slices.Contains(actions[id], "start") })
	})
	return actions
}

func (r *Runtime) events(t testing.TB, since time.Time) map[string][]string {
	t.Helper()
	query := url.Values{"filters": {`{"type":["container"]}`}, "since": {strconv.FormatInt(since.Unix(), 10)}, "until": {strconv.FormatInt(time.Now().Unix()+1, 10)}}
	res, err := r.http().Get("http://runtime/v1.41/events?" + query.Encode())
	if err != nil {
		t.Fatal(err)
	}
	defer res.Body.Close()
	actions := map[string][]string{}
	for lines := json.NewDecoder(res.Body); ; {
		var e struct {
			Action string
			Actor  struct{ ID string }
			Nano   int64 `json:"timeNano"`
		}
		if lines.Decode(&e) != nil {
			return actions
		}
		if time.Unix(0, e.Nano).After(since) {
			actions[e.Actor.ID] = append(actions[e.Actor.ID], e.Action)
		}
	}
}

// http returns a client for calls that docker.Client lacks.
func (r *Runtime) http() *http.Client {
	return &http.Client{Transport: &http.Transport{DisableKeepAlives: true, DialContext: func(ctx context.Context, _, _ string) (net.Conn, error) {
		return (&net.Dialer{}).DialContext(ctx, "unix", r.Socket)
	}}}
}

// Inspect returns a container.
func (r *Runtime) Inspect(t testing.TB, name string) docker.Container {
	t.Helper()
	c, err := r.Client.Inspect(context.Background(), name)
	if err != nil {
		t.Fatal(err)
	}
	return c
}
