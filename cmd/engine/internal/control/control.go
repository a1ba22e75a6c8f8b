// Package control opens and finds the control sockets of engines. Through these unix sockets, the user of an engine, and root,
// may reload it and operate its targets without a token, whatever address it listens on.
package control

import (
	"context"
	"errors"
	"fmt"
	"net"
	"net/netip"
	"os"
	"path/filepath"
	"slices"
	"strconv"
	"strings"
	"time"

	"github.com/sonde-probe/sonde/internal/dial"
	"github.com/sonde-probe/sonde/internal/listener"
	"github.com/sonde-probe/sonde/internal/private"
)

const (
	prefix     = "sonde-engine-"
	pidPrefix  = "pid-" // in the name of an engine that listens on no address
	socketName = "control.sock"

	// serviceDir is the runtime directory of the packaged service, in which root finds its engine.
	serviceDir = "/run/sonde"

	// dialTimeout limits the wait for an engine that does not accept connections.
	dialTimeout = time.Second
)

// Socket is an open control socket. Close does nothing if the socket is nil.
type Socket struct {
	Listener net.Listener
	dir      string
}

// here returns the suffix of an engine's name: "@" and the number of the namespace in which the engine's address is unique,
// such as "@4026531840". Containers and network namespaces may share the directory. It returns "" on systems without
// namespaces.
func here(address string) string {
	kind := "net"
	if strings.HasPrefix(address, pidPrefix) {
		kind = "pid"
	}
	link, err := os.Readlink("/proc/self/ns/" + kind) // "net:[4026531840]"
	_, number, ok := strings.Cut(strings.TrimSuffix(link, "]"), "[")
	if err != nil || !ok {
		return ""
	}
	return "@" + number
}

// Listen opens the control socket of an engine. address is that on which the engine listens, or "" for none. Only this user and
// root can connect.
func Listen(address string) (*Socket, error) {
	parent, err := private.OfUser()
	if err != nil {
		return nil, err
	}
	if address == "" {
		address = fmt.Sprintf("%s%d", pidPrefix, os.Getpid())
	}
	s := &Socket{dir: filepath.Join(parent, prefix+address+here(address))}
	path := filepath.Join(s.dir, socketName)
	if err := os.Mkdir(s.dir, 0o700); err != nil && !errors.Is(err, os.ErrExist) {
		return nil, err
	}
	if isListening(path) {
		return nil, fmt.Errorf("another engine listens on %s", path)
	}
	if err = os.Chmod(s.dir, 0o700); err == nil {
		s.Listener, err = listener.Listen(context.Background(), "unix:"+path, listener.ForUser)
	}
	if err != nil {
		return nil, errors.Join(err, os.Remove(s.dir))
	}
	return s, nil
}

// Close closes and removes the socket.
func (s *Socket) Close() {
	if s != nil {
		_ = s.Listener.Close()
		_ = os.Remove(s.dir)
	}
}

// isListening reports whether an engine listens on a socket.
func isListening(path string) bool {
	c, err := net.DialTimeout("unix", path, dialTimeout)
	if err != nil {
		return false
	}
	_ = c.Close()
	return true
}

// sockets returns the paths of the sockets in a directory. For "" it returns none.
func sockets(parent string) []string {
	if parent == "" {
		return nil
	}
	paths, _ := filepath.Glob(filepath.Join(parent, prefix+"*", socketName)) // the pattern is valid
	return paths
}

// Find returns the path of the control socket of the engine that listens on address, or of the only running engine if address
// is "". It returns "" if there is no such engine, and an error if there are several, or only ones in other namespaces. It
// finds engines of this user; for root also the service.
func Find(address string) (path string, err error) {
	var found, elsewhere []string
	own, _ := private.OfUser() // "" on error
	for _, dir := range []string{own, serviceDir} {
		for _, path := range sockets(dir) {
			name, isHere := nameOf(path)
			switch {
			case !matches(name, address) || !isListening(path):
			case !isHere:
				elsewhere = append(elsewhere, name)
			case !slices.Contains(found, path):
				found = append(found, path)
			}
		}
	}
	switch {
	case len(found) == 1:
		return found[0], nil
	case len(found) == 0 && len(elsewhere) == 0:
		return "", nil
	case len(found) == 0:
		return "", fmt.Errorf("no such engine runs here: %s is in another network or PID namespace; run this command there, with nsenter or in its container", elsewhere[0])
	}
	names := make([]string, len(found))
	for i, path := range found {
		names[i], _ = nameOf(path)
	}
	slices.Sort(names)
	return "", fmt.Errorf("%d engines of this user are running; select one with --address: %s", len(found), strings.Join(names, ", "))
}

// nameOf returns the address of the engine that a socket belongs to, and whether that engine is in this program's namespace.
func nameOf(path string) (name string, isHere bool) {
	name = strings.TrimPrefix(filepath.Base(filepath.Dir(path)), prefix)
	if at := strings.LastIndexByte(name, '@'); at >= 0 {
		name, isHere = name[:at], name[at:] == here(name[:at])
		return name, isHere
	}
	return name, here(name) == ""
}

// matches reports whether an engine with a name can be reached at an address, in any spelling. The address is the one on which
// the engine listens, or, if it listens on all addresses, a loopback address of a family that it serves. The host localhost means
// 127.0.0.1 and ::1, no other loopback address.
func matches(name, address string) bool {
	if address == "" || name == address {
		return true
	}
	listens, err := netip.ParseAddrPort(name)
	host, port, askedErr := net.SplitHostPort(address)
	number, portErr := strconv.ParseUint(port, 10, 16)
	if err != nil || askedErr != nil || portErr != nil || uint16(number) != listens.Port() {
		return false
	}
	asked := []string{dial.HostID(host)}
	if asked[0] == "localhost" {
		asked = []string{"127.0.0.1", "::1"}
	}
	own := listens.Addr().Unmap()
	return slices.ContainsFunc(asked, func(host string) bool {
		ip, err := netip.ParseAddr(host)
		reached := own.IsUnspecified() && ip.IsLoopback() && (own.Is6() || ip.Is4()) // Go listens on [::] for both families
		return err == nil && (ip == own || reached)
	})
}

// Dial returns a DialContext for an http.Transport that connects to the control socket at path.
func Dial(path string) func(ctx context.Context, network, address string) (net.Conn, error) {
	return func(ctx context.Context, _, _ string) (net.Conn, error) {
		return new(net.Dialer).DialContext(ctx, "unix", path)
	}
}
