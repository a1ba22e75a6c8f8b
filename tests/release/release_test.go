// Package release checks the results of make release. Its tests run only in make long.
package release

import (
	"bufio"
	"debug/elf"
	"encoding/json"
	"io"
	"os"
	"os/exec"
	"path/filepath"
	"regexp"
	"runtime"
	"slices"
	"strconv"
	"strings"
	"syscall"
	"testing"

	"github.com/sonde-probe/sonde/tests/program"
	"github.com/sonde-probe/sonde/tests/tier"
)

// release builds the release of the committed tree for this machine, in its own folder, and returns the folder with the result.
func release(t *testing.T) string {
	t.Helper()
	program.OwnRepository(t)
	top, err := filepath.Abs("../..")
	if err != nil {
		t.Fatal(err)
	}
	dir := t.TempDir()
	runIn(t, dir, "git", "clone", "--quiet", top, "sonde")
	runIn(t, filepath.Join(dir, "sonde"), "env", "VERSION=v0.1.0", "dist/release.sh")
	return filepath.Join(dir, "sonde", "bin", "release")
}

func runIn(t *testing.T, dir, program string, args ...string) {
	t.Helper()
	c := exec.Command(program, args...)
	c.Dir = dir
	if out, err := c.CombinedOutput(); err != nil {
		t.Fatalf("%v: %v\n%s", c.Args, err, out)
	}
}

func readText(t *testing.T, path string) string {
	t.Helper()
	text, err := os.ReadFile(path)
	if err != nil {
		t.Fatal(err)
	}
	return string(text)
}

// The package is installed into a copy of this machine's root directory, in its own namespaces, so that the machine stays unchanged
// and no port is occupied.
func TestTheReleaseIsReproducibleAndItsPackageRuns(t *testing.T) {
	tier.Long(t)
	if _, err := os.Stat("../../.git"); err != nil || runtime.GOOS != "linux" {
		t.Skip("this is not a checkout of git on Linux")
	}
	first, second := release(t), release(t)
	one, other := readText(t, first+"/SHA256SUMS"), readText(t, second+"/SHA256SUMS")
	if one != other {
		t.Errorf("two builds differ:\n%s\n%s", one, other)
	}
	for _, name := range []string{".deb", ".rpm", ".tar.gz", ".oci.tar", "plugins/redis.wasm", "sonde.cdx.json", "/sonde-fleet", "sonde-fleet.cdx.json", "/sonde-xds", "sonde-xds.cdx.json", "man/sonde-run.1", "man-fleet/sonde-fleet-push.1", "completion/sonde.bash"} {
		if !strings.Contains(one, name+"\n") {
			t.Errorf("the release lacks %s:\n%s", name, one)
		}
	}
	program := first + "/linux-" + runtime.GOARCH + "/sonde"
	checkProgram(t, program)
	t.Run("image", func(t *testing.T) { runImage(t, first) })
	t.Run("deb", func(t *testing.T) { install(t, first) })
	t.Run("rpm", func(t *testing.T) { installRPM(t, first) })
}

// checkProgram checks that a program is static, and prints its version.
func checkProgram(t *testing.T, program string) {
	t.Helper()
	f, err := elf.Open(program)
	if err != nil {
		t.Fatal(err)
	}
	defer f.Close()
	for _, p := range f.Progs {
		if p.Type == elf.PT_INTERP {
			t.Error("the program is not static")
		}
	}
	if said, err := exec.Command(program, "version").Output(); err != nil || !strings.HasPrefix(string(said), "sonde v0.1.0 ") {
		t.Errorf("sonde version says %q, %v", said, err)
	}
}

// image is the container image of a release, with its files below root.
type image struct {
	root   string
	Config struct {
		User            string
		Env             []string
		Entrypoint, Cmd []string
	} `json:"config"`
}

// unpack unpacks the image of a release, like a container runtime.
func unpack(t *testing.T, release string) (i image) {
	t.Helper()
	dir := t.TempDir()
	i.root = t.TempDir()
	runIn(t, dir, "tar", "-xf", packageNamed(t, release, "sonde", ".oci.tar"))
	blob := func(d struct{ Digest string }) string {
		return filepath.Join(dir, "blobs", strings.ReplaceAll(d.Digest, ":", "/"))
	}
	decode := func(file string, v any) {
		if err := json.Unmarshal([]byte(readText(t, file)), v); err != nil {
			t.Fatalf("%s: %v", file, err)
		}
	}
	var index struct{ Manifests []struct{ Digest string } }
	decode(dir+"/index.json", &index)
	var manifest struct {
		Config struct{ Digest string }
		Layers []struct{ Digest string }
	}
	decode(blob(index.Manifests[0]), &manifest)
	decode(blob(manifest.Config), &i)
	for _, layer := range manifest.Layers {
		runIn(t, i.root, "tar", "-xzf", blob(layer))
	}
	return i
}

// runImage runs the image of a release, in a root directory with only its files and a configuration.
func runImage(t *testing.T, release string) {
	if os.Getuid() != 0 {
		t.Skip("not root: no other root directory is permitted")
	}
	of := unpack(t, release)
	root := of.root
	if _, err := os.Stat(root + "/usr/lib/sonde/plugins/redis.wasm"); err != nil { // which sonde finds by /proc, which is missing here
		t.Error(err)
	}
	text := `
engine { listen = "127.0.0.1:0" }
target "itself" {
  address = "127.0.0.1"
  probe "readiness" {
    tcp { port = 1 }
    period = "100ms"
  }
}
`
	if err := os.WriteFile(root+"/etc/sonde/sonde.hcl", []byte(text), 0o644); err != nil {
		t.Fatal(err)
	}
	if err := os.Chmod(root, 0o755); err != nil {
		t.Fatal(err)
	}
	id, err := strconv.ParseUint(of.Config.User[:strings.Index(of.Config.User, ":")], 10, 32)
	if err != nil {
		t.Fatal(err)
	}
	words := slices.Concat(of.Config.Entrypoint, of.Config.Cmd)
	c := exec.Command(words[0], words[1:]...)
	c.Dir, c.Env = "/", of.Config.Env
	c.SysProcAttr = &syscall.SysProcAttr{Chroot: root, Credential: &syscall.Credential{Uid: uint32(id), Gid: uint32(id)}}
	seen := follow(t, c, func(line string) {
		if strings.Contains(line, "tcp.refused") {
			_ = c.Process.Signal(syscall.SIGTERM)
		}
	})
	if !strings.Contains(seen, "tcp.refused") {
		t.Errorf("the probe was not attempted:\n%s", seen)
	}
}

// follow starts a command, calls look with each line of its output, and returns the whole output when the command has exited with
// status 0.
func follow(t *testing.T, c *exec.Cmd, look func(line string)) string {
	t.Helper()
	stdout, err := c.StdoutPipe()
	if err != nil {
		t.Fatal(err)
	}
	c.Stderr = c.Stdout
	if err := c.Start(); err != nil {
		t.Fatal(err)
	}
	var seen strings.Builder
	for lines := bufio.NewScanner(io.TeeReader(stdout, &seen)); lines.Scan(); {
		look(lines.Text())
	}
	if err := c.Wait(); err != nil {
		t.Errorf("%v\n%s", err, &seen)
	}
	return seen.String()
}

// packageOf returns the package of a release with a suffix. The test is skipped if the package cannot be installed into a copy of
// the root directory.
func packageOf(t *testing.T, release, suffix string, programs ...string) string {
	t.Helper()
	if os.Getuid() != 0 {
		t.Skip("not root: the package is not installed")
	}
	tier.Needs(t, append(programs, "unshare", "chroot", "ip")...)
	if out, err := exec.Command("unshare", "--mount", "--net", "sh", "-c", copyOfRoot, "sh", t.TempDir()).CombinedOutput(); err != nil {
		t.Skipf("this machine permits no overlay of its root directory: the package is not installed\n%s", out)
	}
	return packageNamed(t, release, "sonde", suffix)
}

// packageNamed returns the package of a release with a name and a suffix.
func packageNamed(t *testing.T, release, name, suffix string) string {
	t.Helper()
	packages, err := filepath.Glob(release + "/" + name + "_*" + suffix)
	if err != nil || len(packages) != 1 {
		t.Fatalf("packages: %v %v", packages, err)
	}
	return packages[0]
}

// installRPM installs the rpm of a release, runs the installed program, and removes it.
func installRPM(t *testing.T, release string) {
	file := packageOf(t, release, ".rpm", "rpm")
	c := exec.Command("unshare", "--mount", "--net", "--pid", "--fork", "--kill-child", "sh", "-c", copyOfRoot+installedRPM, "sh", t.TempDir(), file, packageNamed(t, release, "sonde-fleet", ".rpm"))
	if seen := follow(t, c, func(string) {}); !strings.HasSuffix(seen, "removed\n") {
		t.Error(seen)
	}
}

// install installs the deb of a release, runs and reloads the engine with the command lines of its unit, and removes the package.
func install(t *testing.T, release string) {
	file := packageOf(t, release, ".deb", "dpkg")
	args := []string{"--mount", "--net", "--pid", "--fork", "--kill-child", "sh", "-c", copyOfRoot + installed, "sh", t.TempDir(), file, packageNamed(t, release, "sonde-fleet", ".deb")}
	args = append(args, commandLines(t, "sonde.service")...)
	args = append(args, commandLines(t, "fleet.conf")...)
	if seen := follow(t, exec.Command("unshare", args...), func(string) {}); !strings.HasSuffix(seen, "removed\n") {
		t.Error(seen)
	}
}

// commandLines returns the command lines to start and to reload the engine in a file of dist/systemd. A drop-in first clears the
// previous ones with a line without a value.
func commandLines(t *testing.T, file string) (lines []string) {
	t.Helper()
	text := readText(t, "../../dist/systemd/"+file)
	for _, setting := range []string{"ExecStart", "ExecReload"} {
		line := setting + "=(.+)\n"
		if strings.HasSuffix(file, ".conf") {
			line = setting + "=\n" + line
		}
		found := regexp.MustCompile("\n"+line).FindAllStringSubmatch(text, -1)
		if len(found) != 1 {
			t.Fatalf("%s does not have one line %q: %q", file, line, found)
		}
		lines = append(lines, found[0][1])
	}
	return lines
}

// copyOfRoot mounts a copy of the root directory at $1/root.
const copyOfRoot = `set -e
mount -t tmpfs tmpfs "$1"
mkdir "$1/upper" "$1/work" "$1/root"
mount -t overlay overlay -o "lowerdir=/,upperdir=$1/upper,workdir=$1/work" "$1/root"
`

// installed does the same as a user and systemd with the package $2, whose unit has the command lines $4 to start and $5 to reload,
// and then with the package $3 of sonde-fleet, which makes the unit run $6 and $7. The calls of systemctl by both packages during
// upgrades are in $root/calls.
const installed = `
as_service="chroot --userspec=sonde:sonde $1/root env -i PATH=/usr/bin:/bin XDG_CACHE_HOME=/var/cache RUNTIME_DIRECTORY=/run/sonde"
start() {
	$as_service $1 2>&1 &
	pid=$!
	until chroot "$root" /usr/bin/sonde status; do
		kill -0 $pid
		sleep 0.1
	done
}
root=$1/root
ip link set lo up
mount -t proc proc "$root/proc"
mount --rbind /dev "$root/dev"
rm -rf "$root/etc/sonde" "$root/var/lib/sonde"
cp "$2" "$root/sonde.deb"
chroot "$root" dpkg -i /sonde.deb
chroot "$root" /usr/bin/sonde validate --strict /etc/sonde
test "$(chroot "$root" /usr/bin/sonde version | cut -d' ' -f2)" = v0.1.0
printf 'target "cache" {\n address = "127.0.0.1"\n probe "readiness" {\n redis { port = 1 }\n }\n}\n' >"$root/cache.hcl"
chroot "$root" /usr/bin/sonde validate --strict /cache.hcl
chroot "$root" install -d -m 0700 -o sonde -g sonde /var/cache/sonde /run/sonde
start "$4"
$as_service $5
cp "$root/etc/sonde/sonde.hcl" "$root/sonde.hcl"
printf 'target' >>"$root/etc/sonde/sonde.hcl"
if $as_service $5; then
	echo a configuration with an error was put into use
	exit 1
fi
kill -TERM $pid
wait $pid
test -f "$root/var/lib/sonde/sonde.state"
cp "$root/sonde.hcl" "$root/etc/sonde/sonde.hcl"
cp "$3" "$root/fleet.deb"
chroot "$root" dpkg -i /fleet.deb
test -e "$root/usr/lib/systemd/system/sonde.service.d/10-sonde-fleet.conf"
start "$6"
$as_service $7
kill -TERM $pid
wait $pid
` + fakeSystemd + `
chroot "$root" dpkg -i /sonde.deb /fleet.deb
cat "$root/calls"
test "$(grep -c try-restart "$root/calls")" = 1
chroot "$root" dpkg --purge sonde-fleet
test "$(grep -c try-restart "$root/calls")" = 2
rm -r "$root/run/systemd/system"
test ! -e "$root/usr/lib/systemd/system/sonde.service.d/10-sonde-fleet.conf"
chroot "$root" dpkg --purge sonde
test ! -e "$root/usr/bin/sonde"
test ! -e "$root/etc/sonde/sonde.hcl"
test ! -e "$root/var/lib/sonde"
echo removed
`

// fakeSystemd makes packages find a systemd whose systemctl records its arguments.
const fakeSystemd = `
mkdir -p "$root/run/systemd/system"
rm -f "$root/usr/bin/systemctl"
printf '#!/bin/sh\necho "$@" >>/calls\n' >"$root/usr/bin/systemctl"
chmod 0755 "$root/usr/bin/systemctl"
`

// installedRPM does the same as a user with the rpm $2, and then with that of sonde-fleet, $3. Rpm does not know the packages of a
// Debian system, so dependencies are not checked.
const installedRPM = `
root=$1/root
ip link set lo up
mount -t proc proc "$root/proc"
mount --rbind /dev "$root/dev"
rm -rf "$root/etc/sonde" "$root/var/lib/sonde"
cp "$2" "$root/sonde.rpm"
chroot "$root" rpm -i --nodeps /sonde.rpm
test "$(chroot "$root" stat -c %U:%a /var/lib/sonde)" = sonde:700
chroot "$root" /usr/bin/sonde validate --strict /etc/sonde
chroot "$root" rpm -U --nodeps --force /sonde.rpm
test -e "$root/usr/bin/sonde"
cp "$3" "$root/fleet.rpm"
chroot "$root" rpm -i /fleet.rpm
chroot "$root" /usr/bin/sonde-fleet version
test -e "$root/usr/share/man/man1/sonde-fleet-push.1"
` + fakeSystemd + `
chroot "$root" rpm -U --nodeps --force /sonde.rpm /fleet.rpm
cat "$root/calls"
test "$(grep -c try-restart "$root/calls")" = 1
chroot "$root" rpm -e sonde-fleet
test "$(grep -c try-restart "$root/calls")" = 2
rm -r "$root/run/systemd/system"
chroot "$root" rpm -e sonde
test ! -e "$root/usr/bin/sonde"
test -e "$root/var/lib/sonde"
echo removed
`
