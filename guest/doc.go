// Package guest is the Go SDK for Sonde plugins. A plugin is a WebAssembly file that makes probe
// attempts in a sandbox. The SDK has no dependencies, and a plugin can be built with the Go
// toolchain alone.
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
// This compiles the package for WebAssembly and adds the manifest to the file: the plugin's name
// and the schema of its settings, with which Sonde validates configurations. Without -o it prints
// the manifest.
//
// A host does not run main: it initialises the plugin and calls its exported functions for each
// attempt. Therefore the plugin must register in init, and Main does nothing in a host.
//
// # Connections
//
// Target.Dial connects to an address. Target.DialPort connects to a port from the settings, with TLS if the
// settings configure it. Both the plugin's own code and libraries can use the connection; Target.DialContext fits
// their dial hooks. While a read waits, other goroutines run. Reads are cheapest while there are no other
// goroutines and no timer of the attempt's context. A plugin can reach only destinations that its operator
// grants; by default that is the probe's target.
//
// A library that dials with package net uses a simulated network inside the module, which reaches
// nothing. The attempt is then Unknown, with a detail that names the cause.
//
// # Testing
//
// Outside WebAssembly the package uses the operating system's network, so that go test can test a
// plugin's logic against a real server: see Trial.
package guest
