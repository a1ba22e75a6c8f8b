package handlers

import (
	"bytes"
	"fmt"
	"maps"
	"os"
	"path/filepath"
	"slices"
	"strings"

	"github.com/sonde-probe/sonde/config"
	"github.com/sonde-probe/sonde/internal/files"
	"github.com/sonde-probe/sonde/wasmhost"
	"github.com/sonde-probe/sonde/wasmhost/abi"
)

// installedDir is the folder of plugins installed by packages, relative to the folder of the program: /usr/lib/sonde/plugins
// for /usr/bin/sonde.
const installedDir = "../lib/sonde/plugins"

// ownGrant is the grant of plugins without a plugin block: to dial the probed target.
var ownGrant = wasmhost.Config{Grant: wasmhost.Grant{Dial: []string{"target"}}}

// installedPlugins returns the plugins that are installed beside this program, by name.
func installedPlugins() map[string]string {
	program, err := os.Executable()
	if err != nil {
		return nil
	}
	if resolved, err := filepath.EvalSymlinks(program); err == nil {
		program = resolved
	}
	paths, _ := filepath.Glob(filepath.Join(filepath.Dir(program), installedDir, "*.wasm")) // the pattern is valid
	all := make(map[string]string, len(paths))
	for _, path := range paths {
		all[strings.TrimSuffix(filepath.Base(path), ".wasm")] = path
	}
	return all
}

// addInstalled adds the handlers of installed plugins to the built-in ones. A plugin is loaded when a configuration uses it.
// Its schema, which is inside a file of several megabytes, is read only if a source contains its name.
func (p *Plugins) addInstalled(builtin map[string]config.Handler, sources []config.Source) {
	installed := installedPlugins()
	maps.DeleteFunc(installed, func(name, _ string) bool { _, exists := builtin[name]; return exists })
	for name, path := range installed {
		h := config.Handler{Load: func(e config.Engine) (config.Handler, error) {
			_, load, err := p.open(e, config.Plugin{Name: name, Source: path, Settings: ownGrant})
			if err != nil {
				return config.Handler{}, fmt.Errorf("%s: %w", path, err)
			}
			return load()
		}}
		if slices.ContainsFunc(sources, func(s config.Source) bool { return bytes.Contains(s.Bytes, []byte(name)) }) {
			h.Schema = schemaOf(path)
		}
		builtin[name] = h
	}
}

// schemaOf returns the schema in a plugin's manifest. It is empty if the plugin is unusable; loading the plugin reports the
// error.
func schemaOf(path string) config.Schema {
	module, err := files.ReadRegular(path, wasmhost.DefaultModuleSize)
	if err != nil {
		return config.Schema{}
	}
	m, err := abi.ReadManifest(module)
	if err != nil {
		return config.Schema{}
	}
	return schema(m.Doc, m.Settings)
}
