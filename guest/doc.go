// Package guest is the Go SDK for plugins of Sonde: one WebAssembly file that
// makes probe attempts in a sandbox. It has no dependencies, and plugins need no
// tool but Go.
//
// # A plugin
//
// A plugin is a package main that registers one function in init, and calls Main:
//
//	package main
//
//	import (
//		"context"
//
//		"github.com/sonde-probe/sonde/guest"
//	)
//
//	type settings struct {
//		Port  string `sonde:"port,required" doc:"a number, or the name of one of the target's ports"`
//		Greet string `sonde:"greet" default:"HELO" doc:"what to say first"`
//	}
//
//	func attempt(ctx context.Context, t guest.Target[settings]) guest.Result {
//		c, err := t.Dial(ctx, "tcp", ":"+t.Settings.Port)
//		if err != nil {
//			return guest.FailWith("line.dial", err)
//		}
//		defer c.Close()
//		answer := make([]byte, 64)
//		if _, err = c.Write([]byte(t.Settings.Greet + "\n")); err == nil {
//			_, err = c.Read(answer)
//		}
//		if err != nil {
//			return guest.FailWith("line.broken", err)
//		}
//		return guest.Succeed("it answers")
//	}
//
//	func init() {
//		guest.Register(guest.Plugin{Name: "line", Version: "1.0.0", Doc: "asks for a line"}, attempt)
//	}
//
//	func main() { guest.Main() }
//
// It is built by running it, which needs nothing but Go:
//
//	go run . -o line.wasm
//
// That compiles the package for WebAssembly and writes the manifest into the file:
// the plugin's name, and the schema of its settings, by which Sonde checks what
// operators write. Without -o the manifest is printed.
//
// A plugin has no main that runs and ends: a host starts it once and calls it for
// each attempt. That is why init registers, and why Main does nothing in a host.
//
// # Connections
//
// Target.Dial returns a connection for those who speak a protocol themselves: it is
// cheap, and while it waits the whole plugin waits. Target.DialContext is for
// libraries that have goroutines of their own, such as clients of databases: it fits
// the hooks that they have for dialing. A plugin reaches what its operator grants
// and nothing else; by default that is the probe's own target.
//
// # Testing
//
// Outside of WebAssembly the package stands on the operating system, so that a
// plugin's logic is tested by plain go test against a real server: see Trial.
package guest
