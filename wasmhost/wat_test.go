package wasmhost_test

import (
	"fmt"
	"strings"

	"github.com/sonde-probe/sonde/tests/wattest"
	"github.com/sonde-probe/sonde/wasmhost/abi"
)

// wat returns a module with the given text and the parts that each plugin needs. Its memory has one
// page, of which the bytes at 0 are free.
func wat(format string, a ...any) []byte {
	head := ""
	body := fmt.Sprintf(format, a...)
	if !strings.Contains(body, "(memory") {
		head = "(memory 1)"
	}
	module := wattest.Assemble(body + head + `
		(export "memory" (memory 0))
		(export "sonde_abi_v1" (func $run))
		(export "sonde_run" (func $run))`)
	module, err := abi.WriteManifest(module, abi.Manifest{Name: "test", ABI: 1, Settings: []abi.Setting{
		{Name: "port", Type: abi.TypeString},
		{Name: "text", Type: abi.TypeString},
		{Name: "tls", Type: abi.TypeBlock, Block: []abi.Setting{{Name: "server_name", Type: abi.TypeString}}},
	}})
	if err != nil {
		panic(err)
	}
	return module
}
