package config

import (
	"cmp"
	"errors"
	"fmt"
	"maps"
	"path/filepath"
	"regexp"
	"slices"
	"strings"

	"github.com/sonde-probe/sonde/config/internal/tree"
	"github.com/sonde-probe/sonde/probe"
)

// pluginLoader loads plugins and scripts.
type pluginLoader struct {
	e        *evaluator
	language *language // without their handlers
	options  *Options
	engine   *decodedEngine

	plugins  map[string]Plugin  // by name
	scripts  map[string]Script  // by name
	handlers map[string]Handler // theirs, and those of the options
}

// loadPlugins decodes the plugin and script blocks, and loads what they name.
func loadPlugins(blocks map[string][]*tree.Block, e *evaluator, l *language, o *Options, engine *decodedEngine) *pluginLoader {
	p := &pluginLoader{e: e, language: l, options: o, engine: engine, plugins: map[string]Plugin{}, scripts: map[string]Script{}, handlers: map[string]Handler{}}
	maps.Copy(p.handlers, o.Handlers)
	first := make(map[string]*tree.Block)
	for _, b := range slices.Concat(blocks["plugin"], blocks["script"]) {
		name := b.Label(0)
		if other, twice := first[name]; twice {
			summary := fmt.Sprintf("there are two %ss named %q", b.Type, name)
			if other.Type != b.Type {
				summary = fmt.Sprintf("a %s and a %s are named %q", other.Type, b.Type, name)
			}
			p.e.addTwice(report{at: b.Header, summary: summary, hint: "give one of them another name"}, other.Header)
			continue
		}
		first[name] = b
		if !p.isValidName(b, name) {
			continue
		}
		p.handlers[name] = Handler{} // known even if the block has errors
		if b.Type == "script" {
			p.loadScript(b, name)
		} else {
			p.loadPlugin(b, name)
		}
	}
	return p
}

// pluginName matches the names that a plugin can have. Its length is bounded because it is
// a label of metrics.
var pluginName = regexp.MustCompile(`^[a-z][a-z0-9_]{0,62}$`)

// isValidName reports a name that a handler block cannot have.
func (p *pluginLoader) isValidName(b *tree.Block, name string) bool {
	r := report{at: b.LabelRange(0), body: &b.Body, hint: fmt.Sprintf("give it another name: the %s's name is that of its handler block", b.Type)}
	builtin, isBuiltin := p.options.Handlers[name]
	switch {
	case isBuiltin && builtin.Load == nil:
		r.summary = fmt.Sprintf("a built-in handler is named %q", name)
	case !pluginName.MatchString(name):
		r.summary = fmt.Sprintf("a %s cannot be named %.80q", b.Type, name)
		r.hint = "start with a letter a-z, then use letters, digits and underscores; at most 63 characters"
	case slices.Contains(p.language.rule.body.Arguments, name), name == "dynamic", name == quorumBlock:
		r.summary = fmt.Sprintf("a %s cannot be named %q, which has another meaning in a probe block", b.Type, name)
	default:
		return true
	}
	p.e.add(r)
	return false
}

func (p *pluginLoader) loadPlugin(b *tree.Block, name string) {
	d := p.language.of("plugin").decode(p.e, b)
	plugin := Plugin{Name: name}
	d.fill(&plugin)
	plugin.Settings = d.settings(p.options.PluginSettings, p.engine.context())
	if d.ok && plugin.Source == "" {
		d.refuse("source", "must not be empty")
	}
	if d.ok && strings.Contains(plugin.Source, "://") {
		d.reportErrors(&probe.FieldError{Field: "source", Problem: "must be a file, not a URL", Hint: "download it, and write its path and its sha256"})
	}
	if !d.ok {
		return
	}
	if !filepath.IsAbs(plugin.Source) {
		plugin.Source = filepath.Join(filepath.Dir(b.Header.Filename), filepath.FromSlash(plugin.Source))
	}
	p.plugins[name] = plugin
	p.loadModule(d, plugin)
}

// loadModule loads a plugin's file, if the configuration permits it.
func (p *pluginLoader) loadModule(d *decodedBlock, plugin Plugin) {
	if p.options.Plugin == nil {
		p.e.add(report{at: d.block.Header, summary: "plugins cannot be used here"})
		return
	}
	sum, load, err := p.options.Plugin(p.engine.Engine, plugin)
	unpinned, mayLoad := report{}, false
	if err == nil {
		if unpinned, mayLoad = plugin.checkPin(d, sum); !mayLoad {
			return
		}
	}
	var h Handler
	if err == nil {
		h, err = load()
	}
	if _, ok := errors.AsType[*probe.FieldError](err); err != nil && !ok {
		err = probe.FieldErrorf("source", "cannot be used: %v", err)
	}
	if err != nil {
		d.reportErrors(err)
		return
	}
	if unpinned.summary != "" {
		d.e.add(unpinned)
	}
	h.Revision += sum
	p.handlers[plugin.Name] = h
}

// checkPin reports a file whose hash is another than that in the configuration, or that has none there. It returns
// a warning, if there is one, which is for a file that can be loaded.
func (p Plugin) checkPin(d *decodedBlock, sum string) (warning report, mayLoad bool) {
	file := filepath.Base(p.Source)
	r := report{at: d.sources["source"].value, body: &d.block.Body, hint: fmt.Sprintf("if you trust the file, write its current hash: sha256 = %q", sum)}
	switch {
	case p.SHA256 != "" && (len(p.SHA256) != len(sum) || strings.Trim(p.SHA256, "0123456789abcdefABCDEF") != ""):
		d.refuse("sha256", "must be 64 hexadecimal digits")
		return report{}, false
	case p.SHA256 != "" && strings.ToLower(p.SHA256) != sum:
		r.at = d.sources["sha256"].value
		r.summary = fmt.Sprintf("sha256 does not match %s", file)
	case p.SHA256 != "" || p.AllowUnpinned:
		return report{}, true
	case below(r.at.Filename, p.Source):
		r.isWarning = true
		r.summary = fmt.Sprintf("plugin %q has no sha256: anyone who can write %s decides what the engine runs", p.Name, file)
		return r, true
	default:
		r.summary = fmt.Sprintf("plugin %q has no sha256, and its file is outside the configuration's folder", p.Name)
		r.hint += ", or set allow_unpinned = true"
	}
	d.e.add(r)
	return report{}, false
}

// below reports whether a file is in the folder of another, or in a folder inside it.
func below(other, file string) bool {
	dir, noDir := filepath.Abs(filepath.Dir(other))
	file, noFile := filepath.Abs(file)
	rel, err := filepath.Rel(dir, file)
	return cmp.Or(noDir, noFile, err) == nil && filepath.IsLocal(rel)
}
