// Package peerimport converts configurations of supervisord, monit and gatus to targets, for sonde import.
//
//	peerimport.go   recognizes the tool of a file, and writes targets
//	ini.go          files of supervisord: sections, and words in quotes
//	supervisord.go  programs, which become processes
//	control.go      files of monit: statements
//	monit.go        checks of services, hosts and programs
//	connection.go   monit's tests of connections
//	gatus.go        endpoints
//	condition.go    their conditions
package peerimport

import (
	"errors"
	"fmt"
	"strconv"
	"strings"

	"github.com/sonde-probe/sonde/config/document"
	"github.com/sonde-probe/sonde/probe"
)

// Options are settings that are not in the file.
type Options struct {
	Lax bool // also write a check without conditions that Sonde does not support
}

// tools are the supported tools.
var tools = []struct {
	recognizes func(text []byte) bool
	write      func(w *writer, text []byte) error
}{
	{isSupervisord, (*writer).supervisord},
	{isGatus, (*writer).gatus},
	{isMonit, (*writer).monit},
}

// maxBytes limits the size of a file.
const maxBytes = 3 << 20

// Recognizes reports whether text is a configuration of a tool that can be imported.
func Recognizes(text []byte) bool {
	for _, tool := range tools {
		if len(text) <= maxBytes && tool.recognizes(text) {
			return true
		}
	}
	return false
}

// Write converts a configuration that Recognizes accepts. It returns warnings about parts that are not converted, which are
// also written as comments. It returns an error for a text that the tool would reject as well.
func Write(name string, text []byte, o Options) (doc *document.Document, warnings []string, err error) {
	w := &writer{options: o, file: name, doc: document.New(), names: map[string]bool{}}
	w.doc.Comment("From %s.", name)
	for _, tool := range tools {
		if tool.recognizes(text) {
			if err := tool.write(w, text); err != nil {
				return nil, nil, fmt.Errorf("%s: %w", name, err)
			}
			return w.doc, w.warnings, nil
		}
	}
	return nil, nil, errors.New(name + ": it is not a configuration of supervisord, monit or gatus")
}

// writer converts one file.
type writer struct {
	options  Options
	file     string
	doc      *document.Document
	names    map[string]bool // of the targets that were written
	warnings []string
}

// warn writes a comment about a part of the file, and adds it to the warnings. where may be empty.
func (w *writer) warn(where string, body *document.Body, format string, a ...any) {
	body.Comment(format, a...)
	at := w.file + ": "
	if where != "" {
		at += where + ": "
	}
	w.warnings = append(w.warnings, at+fmt.Sprintf(format, a...))
}

// draft is a target, or one of its probes, that is being written. If it cannot be converted, it is written as a comment.
type draft struct {
	w     *writer
	where string         // its name in the file
	into  *document.Body // the body to which it is added
	doc   *document.Document
	body  *document.Body // of the target
	lost  []string       // unsupported conditions, without which it passes where the tool's check fails
	why   string         // why it is left out; empty if it is not
}

// draft begins a target. where is its name in the file.
func (w *writer) draft(where, name string) *draft {
	d := &draft{w: w, where: where, into: &w.doc.Body, doc: document.New()}
	d.body = d.doc.Block("target", name)
	switch err := (probe.ID{Target: name, Kind: probe.Readiness}).Check(); {
	case err != nil:
		d.leaveOut("its name: %v", err)
	case w.names[name]:
		d.leaveOut("there is another target %q", name)
	}
	w.names[name] = true
	return d
}

// warn writes a comment into the target, and adds it to the warnings.
func (d *draft) warn(format string, a ...any) { d.w.warn(d.where, d.body, format, a...) }

// lose records a condition that Sonde does not support.
func (d *draft) lose(format string, a ...any) { d.lost = append(d.lost, fmt.Sprintf(format, a...)) }

// leaveOut records why the target is written as a comment. Only the first reason counts.
func (d *draft) leaveOut(format string, a ...any) {
	if d.why == "" {
		d.why = fmt.Sprintf(format, a...)
	}
}

// part begins a part of the target, such as a probe, that can be left out on its own.
func (d *draft) part() *draft {
	part := &draft{w: d.w, where: d.where, into: d.body, doc: document.New()}
	part.body = &part.doc.Body
	return part
}

// end writes the draft, as a comment if it is left out.
func (d *draft) end() {
	d.into.Newline()
	if lost := strings.Join(d.lost, ", "); lost != "" && d.why == "" {
		if d.w.options.Lax {
			d.warn("Ignored, so this check is laxer: %s.", lost)
		} else {
			d.leaveOut("Sonde does not support %s, and without it this check would be laxer; --lax converts it anyway", lost)
		}
	}
	if d.why == "" {
		d.into.Append(d.doc)
		return
	}
	d.w.warn(d.where, d.into, "Not converted: %s.", d.why)
	d.into.CommentOut(d.doc)
}

// port parses a port number.
func port(text string) (int, bool) {
	n, err := strconv.Atoi(text)
	return n, err == nil && n > 0 && n < 1<<16
}
