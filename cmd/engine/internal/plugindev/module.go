package plugindev

import (
	"fmt"

	"github.com/sonde-probe/sonde/cmd/engine/internal/cli"
	"github.com/sonde-probe/sonde/wasmhost"
	"github.com/sonde-probe/sonde/wasmhost/abi"
)

// outline is what is shown of a module that is not run.
type outline struct {
	Imports  []string       `json:"imports"` // "sonde_v1.dial"
	Exports  []string       `json:"exports"`
	Memory   memoryLimits   `json:"memory"`
	Sections map[string]int `json:"sections"` // their lengths in bytes, by name
}

// memoryLimits are those of a module's own memory, in bytes.
type memoryLimits struct {
	Least int64 `json:"least"`
	Most  int64 `json:"most,omitempty"` // 0: the module sets no bound
}

// sectionNames are those of the WebAssembly core specification, section 5.5.2.
var sectionNames = [...]string{
	"custom", "type", "import", "function", "table", "memory", "global", "export", "start", "element", "code", "data", "data count",
}

// outlineOf looks at a module.
func outlineOf(module []byte) (outline, error) {
	seen, err := wasmhost.Inspect(module)
	if err != nil {
		return outline{}, err
	}
	return outline{
		Imports: cleanAll(seen.Imports), Exports: cleanAll(seen.Exports),
		Memory: memoryLimits{seen.Memory, seen.MaxMemory}, Sections: sectionSizes(module),
	}, nil
}

// sectionSizes returns the lengths of a module's sections.
func sectionSizes(module []byte) map[string]int {
	sizes := make(map[string]int)
	for s, err := range abi.Sections(module) {
		if err != nil {
			return sizes // Look has told of it
		}
		name := fmt.Sprintf("section %d", s.ID)
		if int(s.ID) < len(sectionNames) {
			name = sectionNames[s.ID]
		}
		if s.ID == abi.SectionCustom {
			name = clean(s.Name)
		}
		sizes[name] += len(s.Body)
	}
	return sizes
}

// clean makes a name from a stranger fit to be shown.
func clean(s string) string { return cli.OneLine(s, abi.MaxName*2) }

func cleanAll(names []string) []string {
	all := make([]string, len(names))
	for i, name := range names {
		all[i] = clean(name)
	}
	return all
}
