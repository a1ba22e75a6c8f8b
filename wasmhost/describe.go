package wasmhost

import (
	"strconv"
	"strings"
)

// describe returns the target as InputTarget tells it.
func (c *call) describe() string {
	var b strings.Builder
	line(&b, "name", c.target.Name)
	if c.target.Address != "" {
		line(&b, "address", c.target.Address)
	}
	for _, name := range c.target.PortNames() {
		line(&b, "port", strconv.Itoa(int(c.target.Ports[name]))+" "+name)
	}
	if c.handler != nil {
		line(&b, "revision", c.handler.settings.Revision)
	}
	return b.String()
}
