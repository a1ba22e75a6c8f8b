package sondecaddy

import (
	"github.com/caddyserver/caddy/v2"

	"github.com/sonde-probe/sonde/group"
	"github.com/sonde-probe/sonde/probe"
)

// source is what modules get their servers from. Modules with equal settings share one. Since
// Caddy sets a new configuration up before it ends the old one, a source with unchanged
// settings goes on over a reload with what it knows.
type source interface {
	caddy.Destructor

	// group has the servers.
	group() *group.Group

	// observe takes what a request says about the server at an address.
	observe(dial string, o probe.Observation)
}

// sources are the sources in use, by their settings, and the engine that some of them share.
var sources = caddy.NewUsagePool()
