// Package handlers provides the handler blocks of a configuration: those that are
// built in, and those of its plugins. It loads configurations with them.
//
//	handlers.go the handlers that are built in
//	load.go     the flags that give variables, and loading
//	plugins.go  the modules that a configuration has loaded
package handlers

import (
	execprobe "github.com/sonde-probe/sonde/builtin/exec"
	httpprobe "github.com/sonde-probe/sonde/builtin/http"
	tcpprobe "github.com/sonde-probe/sonde/builtin/tcp"
	"github.com/sonde-probe/sonde/config"
)

// Builtin returns the built-in handler blocks by name.
func Builtin() map[string]config.Handler {
	return map[string]config.Handler{
		"exec": config.Of(execprobe.New),
		"http": config.Of(httpprobe.New),
		"tcp":  config.Of(tcpprobe.New),
	}
}
