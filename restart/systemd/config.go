package systemd

import (
	"cmp"
	"fmt"
	"log/slog"
	"os"
	"path/filepath"
	"regexp"
	"strings"

	"github.com/sonde-probe/sonde/internal/dbus"
	"github.com/sonde-probe/sonde/internal/limits"
	"github.com/sonde-probe/sonde/probe"
	"github.com/sonde-probe/sonde/restart"
)

// Config configures a driver.
type Config struct {
	Target string       // the target's name, for log records
	Buses  *Buses       `json:"-"` // required
	Logger *slog.Logger `json:"-"` // default: none

	Name string `hcl:"name,label" doc:"name of a service, such as nginx.service, or another name that systemd knows it by"`
	User bool   `hcl:"user,optional" doc:"the service is one of the user that the engine runs as, as of systemctl --user" default:"false" json:",omitempty"`
}

const (
	suffix      = ".service"
	maxUnitName = 255 // UNIT_NAME_MAX of systemd, with the NUL
)

var validName = regexp.MustCompile(`^[a-zA-Z0-9:_.\\-]+(@[a-zA-Z0-9:_.\\-]+)?\.service$`) // like unit_name_is_valid of systemd

// Check validates the configuration without contacting systemd. It returns probe.FieldErrors, or nil.
func (c Config) Check() error {
	wrong := limits.Check(c, "")
	stem := strings.TrimSuffix(c.Name, suffix)
	refuse := func(problem, hint string) {
		wrong = append(wrong, &probe.FieldError{Field: "name", Problem: problem, Hint: hint})
	}
	switch other := filepath.Ext(c.Name); {
	case c.Name == "":
		refuse("is missing", `write unit "nginx.service" {}`)
	case other == ".socket" || other == ".timer" || other == ".target" || other == ".mount" || other == ".path" || other == ".slice" || other == ".scope":
		refuse(fmt.Sprintf("is %q, and only a service has processes that can fail", c.Name), fmt.Sprintf("name the service behind it, such as %q", strings.TrimSuffix(c.Name, other)+suffix))
	case other != suffix:
		refuse(fmt.Sprintf("is %q, and the name of a service ends with .service", c.Name), fmt.Sprintf("write %q", c.Name+suffix))
	case strings.HasSuffix(stem, "@"):
		refuse(fmt.Sprintf("is %q, a template that never runs itself", c.Name), fmt.Sprintf("name an instance of it, such as %q", stem+"1"+suffix))
	case !validName.MatchString(c.Name) || len(c.Name) > maxUnitName:
		refuse(fmt.Sprintf("is %q, which no service can have: letters, digits and : - _ . \\ are allowed, and one @ before the name of an instance", c.Name), "systemctl list-units --type=service shows the names")
	}
	return wrong.Err()
}

// systemBus is the default socket of the system bus.
const systemBus = "/run/dbus/system_bus_socket"

// socket returns the path of the bus of the unit's manager.
func (c Config) socket() (string, error) {
	variable, path := "DBUS_SYSTEM_BUS_ADDRESS", systemBus
	if c.User {
		variable = "DBUS_SESSION_BUS_ADDRESS"
		path = filepath.Join(cmp.Or(os.Getenv("XDG_RUNTIME_DIR"), fmt.Sprintf("/run/user/%d", os.Getuid())), "bus")
	}
	address := os.Getenv(variable)
	if address == "" {
		return path, nil
	}
	path, err := dbus.Address(address)
	if err != nil {
		return "", fmt.Errorf("%s: %w", variable, err)
	}
	return path, nil
}

// New returns a driver, or an error about Config. It does not contact systemd: drivers wait for it.
func New(c Config) (restart.Driver, error) {
	if err := c.Check(); err != nil {
		return nil, err
	}
	socket, err := c.socket()
	if err != nil {
		return nil, err
	}
	return newDriver(c.Buses, socket, c.Name, cmp.Or(c.Logger, slog.New(slog.DiscardHandler)).With("target", c.Target)), nil
}
