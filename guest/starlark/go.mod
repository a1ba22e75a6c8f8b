module github.com/sonde-probe/sonde/guest/starlark

go 1.26.0

require github.com/sonde-probe/sonde/guest v0.0.0

require (
	go.starlark.net v0.0.0-20260908191801-89a6a09411d5
	golang.org/x/sys v0.42.0 // indirect
)

replace github.com/sonde-probe/sonde/guest => ..
