// Certificates of appliances may have a negative serial number. Like curl, accept them: verification does not use the number.
//go:debug x509negativeserial=1

// Command engine is the binary sonde: it runs probes, and helps to write their configuration. Its commands are in package
// internal/root.
package main

import (
	"runtime"

	"github.com/sonde-probe/sonde/cmd/engine/internal/root"
)

func init() { runtime.LockOSThread() } // see root.Main

func main() { root.Main(options) }

var options = root.Options{Program: "sonde"}
