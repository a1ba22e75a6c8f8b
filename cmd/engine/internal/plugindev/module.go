package plugindev

import (
	"fmt"

	"github.com/sonde-probe/sonde/probe"
	"github.com/sonde-probe/sonde/wasmhost/abi"
)

// sectionNames are those of the WebAssembly core specification, section 5.5.2.
var sectionNames = [...]string{
	"custom", "type", "import", "function", "table", "memory", "global", "export", "start", "element", "code", "data", "data count",
}

// sectionSizes returns the lengths of a module's sections.
func sectionSizes(module []byte) map[string]int {
	sizes := make(map[string]int)
	for s, err := range abi.Sections(module) {
		if err != nil {
			return sizes // Inspect has returned an error
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

// clean makes a name of a module fit for a terminal.
func clean(s string) string { return probe.OneLine(s, abi.MaxName*2) }

func cleanAll(names []string) []string {
	all := make([]string, len(names))
	for i, name := range names {
		all[i] = clean(name)
	}
	return all
}
