package main

import (
	execprobe "github.com/sonde-probe/sonde/builtin/exec"
	httpprobe "github.com/sonde-probe/sonde/builtin/http"
	tcpprobe "github.com/sonde-probe/sonde/builtin/tcp"
	"github.com/sonde-probe/sonde/config"
)

// handlers are the handler blocks that a configuration can use.
func handlers() map[string]config.Handler {
	return map[string]config.Handler{
		"exec": config.Of(execprobe.New),
		"http": config.Of(httpprobe.New),
		"tcp":  config.Of(tcpprobe.New),
	}
}
