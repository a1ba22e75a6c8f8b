// Package blackboximport converts the configuration of blackbox_exporter to probe_module blocks, for sonde import.
//
//	blackboximport.go  reads the file, and writes its modules
//	fields.go          reads objects, and records unread fields
//	http.go            the prober http
//	tcp.go             the prober tcp
//	lines.go           converts its expressions for lines to expressions for streams
//	icmp.go            the prober icmp
//	plugins.go         the probers dns and grpc
package blackboximport

import (
	"cmp"
	"encoding/json"
	"errors"
	"fmt"
	"maps"
	"regexp"
	"slices"
	"strings"
	"time"

	"sigs.k8s.io/yaml"

	"github.com/sonde-probe/sonde/config/document"
)

// maxBytes limits the size of a file.
const maxBytes = 3 << 20

// Options are settings that are not in the file.
type Options struct {
	Allow  []string // hosts that requests may probe: blackbox_exporter allows all
	Lax    bool     // also write modules that pass where those of blackbox_exporter fail
	DNS    Plugin   // for the prober dns
	NoGRPC error    // why modules of the prober grpc are left out; nil if they are not

	Refused map[string]string // the reasons to leave out further modules, by module name
}

// Plugin is the file of a plugin and its hash. If File is empty, modules that need the plugin are left out.
type Plugin struct{ File, SHA256 string }

// Recognizes reports whether a text is a configuration of blackbox_exporter: it has modules and is not a Kubernetes object.
func Recognizes(text []byte) bool {
	var file struct {
		Modules    map[string]any `json:"modules"`
		Kind       any            `json:"kind"`
		APIVersion any            `json:"apiVersion"`
	}
	return len(text) <= maxBytes && yaml.Unmarshal(text, &file) == nil && len(file.Modules) > 0 && file.Kind == nil && file.APIVersion == nil
}

// Write converts the modules of a file to a configuration. It returns warnings about unsupported parts, which are also written
// as comments. It returns an error for values that blackbox_exporter would reject as well.
func Write(name string, text []byte, o Options) (doc *document.Document, warnings []string, err error) {
	asJSON, err := yaml.YAMLToJSONStrict(text)
	if err != nil {
		return nil, nil, fmt.Errorf("%s: %w", name, err)
	}
	var file map[string]any
	if err := json.Unmarshal(asJSON, &file); err != nil {
		return nil, nil, fmt.Errorf("%s: %w", name, err)
	}
	im := &importer{options: o, file: name, head: document.New(), body: document.New()}
	im.head.Comment("From %s. Prometheus asks for /probe?target=…&module=… at the address of the engine.", name)
	im.head.Block("engine").SetWithComment("allow_empty", true, "there are no targets beside those of requests")
	top := &fields{im: im, values: file}
	modules := top.object("modules")
	for _, name := range slices.Sorted(maps.Keys(modules.values)) {
		im.module(name, modules)
	}
	if ignored := top.left(); len(ignored) > 0 {
		im.warn("", &im.body.Body, "Ignored fields: %s.", strings.Join(ignored, ", "))
	}
	if furtherDocument.Match(text) {
		im.warn("", &im.body.Body, "Ignored: further documents of the file, as blackbox_exporter does.")
	}
	if len(o.Allow) == 0 {
		im.warn("", &im.body.Body, "No host is allowed yet: write those that Prometheus names into allow, or give --allow '*.example.com' --allow 10.0.0.0/8.")
	}
	if err := errors.Join(im.errs...); err != nil {
		return nil, nil, err
	}
	im.head.Append(im.body)
	return im.head, im.warnings, nil
}

// furtherDocument matches a file with more than one document: a line that is neither empty nor a comment, followed later by a
// marker.
var furtherDocument = regexp.MustCompile(`(?m)^[ \t]*[^#\s](?s:.*)\n[ \t]*---`)

// importer converts one file.
type importer struct {
	options  Options
	file     string
	head     *document.Document // the engine block, and the plugins that the modules need
	body     *document.Document // the modules
	plugins  []string           // names of the plugins in head
	warnings []string
	objects  []*fields // all objects of the current module
	lost     []string  // unsupported fields of the current module, without which it passes where that of blackbox_exporter fails
	errs     []error
}

// warn writes a comment and adds it to the warnings.
func (im *importer) warn(module string, body *document.Body, format string, a ...any) {
	body.Comment(format, a...)
	where := im.file + ": "
	if module != "" {
		where += "module " + module + ": "
	}
	im.warnings = append(im.warnings, where+fmt.Sprintf(format, a...))
}

// module writes a module.
func (im *importer) module(name string, all *fields) {
	im.objects, im.lost = nil, nil
	m := all.object(name)
	prober, timeout := m.text("prober"), m.text("timeout")
	im.body.Newline()
	own := document.New()
	body := own.Block("probe_module", name)
	if len(im.options.Allow) > 0 {
		body.Set("allow", im.options.Allow)
	} else {
		body.SetWithComment("allow", []string{}, "hosts that requests may name")
	}
	if timeout != "" {
		body.Set("timeout", m.duration("timeout", timeout).String())
	}
	reason := cmp.Or(im.handler(name, prober, body, m), im.options.Refused[name])
	im.otherProbers(name, prober, body, m)
	lost := im.lost
	for _, f := range im.objects {
		lost = append(lost, f.left()...)
	}
	switch {
	case reason != "":
	case len(lost) > 0 && im.options.Lax:
		im.warn(name, body, "Ignored, so this module is laxer than in blackbox_exporter: %s.", strings.Join(lost, ", "))
	case len(lost) > 0:
		reason = fmt.Sprintf("Sonde does not support %s, which would make this module laxer; --lax converts it anyway", strings.Join(lost, ", "))
	}
	if reason == "" {
		im.body.Append(own)
		return
	}
	im.warn(name, &im.body.Body, "Not converted: %s.", reason)
	im.body.CommentOut(own)
}

// handler writes the handler block of a module. It returns why the module is left out, or "".
func (im *importer) handler(name, prober string, body *document.Body, m *fields) (leftOut string) {
	switch prober {
	case "http":
		im.http(name, body, m.object("http"))
	case "tcp":
		return im.tcp(name, body, m.object("tcp"))
	case "icmp":
		icmp(body, m.object("icmp"))
	case "dns":
		return im.dns(name, body, m.object("dns"))
	case "grpc":
		return im.grpc(name, body, m.object("grpc"))
	default:
		return fmt.Sprintf("there is no prober %q", prober)
	}
	return ""
}

// otherProbers warns about settings of probers that a module does not use.
func (im *importer) otherProbers(name, prober string, body *document.Body, m *fields) {
	for _, other := range []string{"http", "tcp", "dns", "grpc", "icmp", "unix"} {
		if _, given := m.take(other); given && other != prober {
			im.warn(name, body, "Ignored: %s, which is of another prober.", other)
		}
	}
}

// maxDuration limits the timeout of a module.
const maxDuration = time.Hour
