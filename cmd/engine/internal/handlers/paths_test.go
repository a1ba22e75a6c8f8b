package handlers

import (
	"slices"
	"strings"
	"testing"

	"github.com/sonde-probe/sonde/config"
)

// A push rejects relative paths in arguments whose fields are marked as paths.
func TestArgumentsWithPathsOnTheMachineOfAnEngineSaySo(t *testing.T) {
	notPushed := []string{"engine", "cluster", "plugin", "script"} // or read from the pushed files
	paths := 0
	var check func(in string, s config.Schema)
	check = func(in string, s config.Schema) {
		for _, f := range s.Fields {
			name := strings.TrimPrefix(in+"."+f.Name, ".")
			if f.Block != nil {
				if !slices.Contains(notPushed, name) {
					check(name, *f.Block)
				}
				continue
			}
			isPath := strings.HasSuffix(f.Name, "_file") || f.Name == "dir" || f.Name == "unix_socket" || strings.Contains(f.Doc, "relative path starts at the working directory")
			if isPath {
				paths++
			}
			if isPath != (f.Path || f.Socket) {
				t.Errorf("%s has a path: %v, its tag says path %v, socket %v", name, isPath, f.Path, f.Socket)
			}
		}
	}
	if check("", config.Language(Options())); paths == 0 {
		t.Error("no argument has a path")
	}
}
