// Package guest is the Go SDK for Sonde plugins. A plugin is one WebAssembly file that
// makes probe attempts in a sandbox. The SDK has no dependencies, and the Go toolchain is
// enough to build a plugin.
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
//		Greet string `sonde:"greet" default:"HELO" doc:"the line to send"`
//	}
//
//	func attempt(ctx context.Context, t guest.Target[settings]) guest.Result {
//		c, err := t.Dial(ctx, "tcp", ":"+t.Settings.Port)
//		if err != nil {
//			return guest.FailWith("line.dial", err)
//		}
//		defer c.Close()
//		response := make([]byte, 64)
//		if _, err = c.Write([]byte(t.Settings.Greet + "\n")); err == nil {
//			_, err = c.Read(response)
//		}
//		if err != nil {
//			return guest.FailWith("line.broken", err)
//		}
//		return guest.Succeed("the server responds")
//	}
//
//	func init() {
//		guest.Register(guest.Plugin{Name: "line", Version: "1.0.0", Doc: "asks for a line"}, attempt)
//	}
//
//	func main() { guest.Main() }
//
// To build it, run it:
//
//	go run . -o line.wasm
//
// That compiles the package for WebAssembly and adds the manifest to the file: the
// plugin's name, and the schema of its settings, which Sonde uses to check configurations.
// Without -o it prints the manifest.
//
// A host initialises a plugin and calls it for each attempt, instead of running main.
// That is why the plugin registers in init, and why Main does nothing in a host.
//
// # Connections
//
// Target.Dial connects, and Target.DialPort to a port of the settings, with TLS if these have it. The connection
// is for the plugin's own code and for libraries, whose dial hooks Target.DialContext fits: while it waits, other
// goroutines run. It is cheapest while there are none, and no timer of the attempt's context. A
// plugin can only reach what its operator grants; by default that is the probe's target.
//
// A library that connects by itself, by package net, finds a network inside the module, which
// reaches nothing: the attempt is Unknown, and says so.
//
// # Testing
//
// Outside of WebAssembly the package uses the operating system's network, so that go test
// can test a plugin's logic against a real server: see Trial.
package guest
