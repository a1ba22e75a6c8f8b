// Command sdk is a plugin whose attempts report numbers of math/rand, which it does not seed,
// and the addresses of a closed connection.
package main

import (
	"context"
	"fmt"
	"math/rand/v2"

	"github.com/sonde-probe/sonde/guest"
)

type settings struct {
	Port string `sonde:"port,required" doc:"the port to connect to"`
}

func attempt(ctx context.Context, t guest.Target[settings]) guest.Result {
	conn, err := t.DialContext(ctx, "tcp", ":"+t.Settings.Port)
	if err != nil {
		return guest.FailWith("sdk.dial", err)
	}
	before := conn.RemoteAddr().String()
	conn.Close()
	if after := conn.RemoteAddr().String(); before == "" || after != before {
		return guest.Fail("sdk.address", "it was "+before+", it is "+after)
	}
	return guest.Succeed(fmt.Sprint(rand.Uint64()))
}

func init() {
	guest.Register(guest.Plugin{Name: "sdk", Version: "1.0.0", Doc: "Reports a number."}, attempt)
}

func main() { guest.Main() }
