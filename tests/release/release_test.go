// Package release checks what make release builds.
package release

import (
	"bufio"
	"debug/elf"
	"io"
	"os"
	"os/exec"
	"path/filepath"
	"regexp"
	"runtime"
	"strings"
	"testing"
)

// release builds the release of the committed tree for this machine, in a folder of its own,
// and returns the folder with the result.
func release(t *testing.T) string {
	t.Helper()
	if testing.Short() {
		t.Skip("builds the program and its packages")
	}
	top, err := filepath.Abs("../..")
	if err != nil {
		t.Fatal(err)
	}
	dir := t.TempDir()
	runIn(t, dir, "git", "clone", "--quiet", top, "sonde")
	runIn(t, filepath.Join(dir, "sonde"), "dist/release.sh", "linux/"+runtime.GOARCH)
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

// The package is installed into a copy of this machine's root directory, in namespaces of its
// own, so that the machine stays as it is and no port is taken.
func TestTheReleaseIsReproducibleAndItsPackageRuns(t *testing.T) {
	if _, err := os.Stat("../../.git"); err != nil || runtime.GOOS != "linux" {
		t.Skip("this is not a checkout of git on Linux")
	}
	first, second := release(t), release(t)
	one, other := readText(t, first+"/SHA256SUMS"), readText(t, second+"/SHA256SUMS")
	if one != other {
		t.Errorf("two builds differ:\n%s\n%s", one, other)
	}
	for _, name := range []string{".deb", ".rpm", ".tar.gz", "sonde.cdx.json", "man/sonde-run.1", "completion/sonde.bash"} {
		if !strings.Contains(one, name+"\n") {
			t.Errorf("the release lacks %s:\n%s", name, one)
		}
	}
	checkProgram(t, first+"/linux-"+runtime.GOARCH+"/sonde")
	install(t, first)
}

// checkProgram checks that a program runs in a container without any other file, such as the
// one of dist/Containerfile.
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
	if copied := "COPY sonde /usr/bin/sonde\n"; !strings.Contains(readText(t, "../../dist/Containerfile"), copied) {
		t.Errorf("dist/Containerfile does not copy the program: %s", copied)
	}
}

// install installs the deb of a release, runs the engine with the command line of its unit,
// and removes the package.
func install(t *testing.T, release string) {
	t.Helper()
	if os.Getuid() != 0 {
		t.Skip("not root: the package is not installed")
	}
	for _, program := range []string{"dpkg", "unshare", "chroot", "ip"} {
		if _, err := exec.LookPath(program); err != nil {
			t.Skipf("%s is missing: the package is not installed", program)
		}
	}
	if out, err := exec.Command("unshare", "--mount", "--net", "sh", "-c", copyOfRoot, "sh", t.TempDir()).CombinedOutput(); err != nil {
		t.Skipf("this machine permits no overlay of its root directory: the package is not installed\n%s", out)
	}
	packages, err := filepath.Glob(release + "/*.deb")
	if err != nil || len(packages) != 1 {
		t.Fatalf("packages: %v %v", packages, err)
	}
	start := regexp.MustCompile(`(?m)^ExecStart=(.*)$`).FindStringSubmatch(readText(t, "../../dist/systemd/sonde.service"))
	c := exec.Command("unshare", "--mount", "--net", "--pid", "--fork", "--kill-child", "sh", "-c", copyOfRoot+installed, "sh", t.TempDir(), packages[0], start[1])
	stdin, err := c.StdinPipe()
	if err != nil {
		t.Fatal(err)
	}
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
		if strings.Contains(lines.Text(), "configuration applied") {
			_, _ = io.WriteString(stdin, "\n") // the script waits for it
		}
	}
	if err := c.Wait(); err != nil || !strings.HasSuffix(seen.String(), "removed\n") {
		t.Errorf("%v\n%s", err, &seen)
	}
}

// copyOfRoot mounts a copy of the root directory at $1/root.
const copyOfRoot = `set -e
mount -t tmpfs tmpfs "$1"
mkdir "$1/upper" "$1/work" "$1/root"
mount -t overlay overlay -o "lowerdir=/,upperdir=$1/upper,workdir=$1/work" "$1/root"
`

// installed does what a user and systemd do with the package $2, whose unit has the command
// line $3.
const installed = `
root=$1/root
ip link set lo up
mount -t proc proc "$root/proc"
mount --rbind /dev "$root/dev"
rm -rf "$root/etc/sonde" "$root/var/lib/sonde"
cp "$2" "$root/sonde.deb"
chroot "$root" dpkg -i /sonde.deb
chroot "$root" /usr/bin/sonde validate --strict /etc/sonde
chroot "$root" install -d -m 0700 -o sonde -g sonde /var/cache/sonde /run/sonde
chroot --userspec=sonde:sonde "$root" env -i PATH=/usr/bin:/bin XDG_CACHE_HOME=/var/cache RUNTIME_DIRECTORY=/run/sonde $3 2>&1 &
pid=$!
read _
chroot "$root" /usr/bin/sonde status
kill -TERM $pid
wait $pid
test -f "$root/var/lib/sonde/sonde.state"
chroot "$root" dpkg --purge sonde
test ! -e "$root/usr/bin/sonde"
test ! -e "$root/etc/sonde/sonde.hcl"
test ! -e "$root/var/lib/sonde"
echo removed
`
