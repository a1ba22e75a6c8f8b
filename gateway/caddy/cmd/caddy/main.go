// Command caddy is Caddy with its standard modules and the one for Sonde: see
// docs/gateways/caddy.md.
package main

import (
	caddycmd "github.com/caddyserver/caddy/v2/cmd"
	_ "github.com/caddyserver/caddy/v2/modules/standard"

	_ "github.com/sonde-probe/sonde/gateway/caddy"
)

func main() { caddycmd.Main() }
