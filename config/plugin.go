package config

import (
	"fmt"
	"path/filepath"
	"regexp"
	"slices"
	"strings"

	"github.com/sonde-probe/sonde/config/internal/tree"
	"github.com/sonde-probe/sonde/probe"
)

// plugins decodes the plugin and script blocks, and adds their handler blocks to the
// language.
func (l *loader) plugins() {
	first := make(map[string]*tree.Block)
	for _, b := range slices.Concat(l.blocks["plugin"], l.blocks["script"]) {
		name := b.Label(0)
		if other, twice := first[name]; twice {
			summary := fmt.Sprintf("there are two %ss named %q", b.Type, name)
			if other.Type != b.Type {
				summary = fmt.Sprintf("a %s and a %s are named %q", other.Type, b.Type, name)
			}
			l.addTwice(report{at: b.Header, summary: summary, hint: "give one of them another name"}, other.Header)
			continue
		}
		first[name] = b
		switch {
		case !l.validPluginName(b, name):
		case b.Type == "script":
			l.script(b, name)
		default:
			l.plugin(b, name)
		}
	}
	l.compileProbeSchemas()
}

// pluginName matches the names that a plugin can have. Its length is bounded because it is
// a label of metrics.
var pluginName = regexp.MustCompile(`^[a-z][a-z0-9_]{0,62}$`)

// validPluginName reports a name that a handler block cannot have.
func (l *loader) validPluginName(b *tree.Block, name string) bool {
	r := report{at: b.LabelRange(0), body: &b.Body, hint: fmt.Sprintf("give it another name: the %s's name is that of its handler block", b.Type)}
	_, builtin := l.handlers[name]
	switch {
	case builtin:
		r.summary = fmt.Sprintf("a built-in handler is named %q", name)
	case !pluginName.MatchString(name):
		r.summary = fmt.Sprintf("a %s cannot be named %.80q", b.Type, name)
		r.hint = "start with a letter a-z, then use letters, digits and underscores; at most 63 characters"
	case slices.Contains(l.schemas.rule.body.Arguments, name), name == "dynamic", name == quorumBlock:
		r.summary = fmt.Sprintf("a %s cannot be named %q, which has another meaning in a probe block", b.Type, name)
	default:
		return true
	}
	l.add(r)
	return false
}

// plugin decodes one plugin block. Even if it has errors, its handler block is known
// afterwards.
func (l *loader) plugin(b *tree.Block, name string) {
	l.handlers[name] = &handlerBlock{name: name}
	d := l.decodeBlock(b, l.schemas.plugin)
	p := Plugin{Name: name}
	l.fill(d, &p)
	p.Settings = l.settings(d, l.options.PluginSettings)
	if d.ok && p.Source == "" {
		l.refuse(d, "source", "must not be empty")
	}
	if d.ok && strings.Contains(p.Source, "://") {
		l.reportErrors(d, &probe.FieldError{Field: "source", Problem: "must be a file, not a URL", Hint: "download it, and write its path and its sha256"})
	}
	if !d.ok {
		return
	}
	if !filepath.IsAbs(p.Source) {
		p.Source = filepath.Join(filepath.Dir(b.Header.Filename), filepath.FromSlash(p.Source))
	}
	l.config.Plugins[name] = p
	l.module(d, p)
}

// module loads a plugin's file, if the configuration permits it.
func (l *loader) module(d *decodedBlock, p Plugin) {
	if l.options.Plugin == nil {
		l.add(report{at: d.block.Header, summary: "plugins cannot be used here"})
		return
	}
	m, err := l.options.Plugin(l.config.Engine, p)
	if err == nil && !l.pinned(d, p, m.SHA256) {
		return
	}
	var h Handler
	if err == nil {
		h, err = m.Load()
	}
	if err != nil {
		l.reportErrors(d, err)
		return
	}
	h.Revision += m.SHA256
	l.handlers[p.Name] = &handlerBlock{h, p.Name, compileSchema(h.Schema)}
}

// pinned reports a file whose hash is another than that in the configuration, or
// that has none there.
func (l *loader) pinned(d *decodedBlock, p Plugin, sum string) bool {
	file := filepath.Base(p.Source)
	r := report{at: d.sources["source"].value, body: &d.block.Body, hint: fmt.Sprintf("if you trust the file, write its current hash: sha256 = %q", sum)}
	switch {
	case p.SHA256 != "" && (len(p.SHA256) != len(sum) || strings.Trim(p.SHA256, "0123456789abcdefABCDEF") != ""):
		l.refuse(d, "sha256", "must be 64 hexadecimal digits")
		return false
	case p.SHA256 != "" && strings.ToLower(p.SHA256) != sum:
		r.at = d.sources["sha256"].value
		r.summary = fmt.Sprintf("sha256 does not match %s", file)
	case p.SHA256 != "" || p.AllowUnpinned:
		return true
	case below(r.at.Filename, p.Source):
		r.severity = Warning
		r.summary = fmt.Sprintf("plugin %q has no sha256: anyone who can write %s decides what the engine runs", p.Name, file)
	default:
		r.summary = fmt.Sprintf("plugin %q has no sha256, and its file is outside the configuration's folder", p.Name)
		r.hint += ", or set allow_unpinned = true"
	}
	l.add(r)
	return r.severity == Warning
}

// below reports whether a file is in the folder of another, or in a folder inside it.
func below(other, file string) bool {
	dir, err := filepath.Abs(filepath.Dir(other))
	if err != nil {
		return false
	}
	if file, err = filepath.Abs(file); err != nil {
		return false
	}
	rel, err := filepath.Rel(dir, file)
	return err == nil && filepath.IsLocal(rel)
}
