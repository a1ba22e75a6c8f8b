package main

import (
	"errors"
	"fmt"

	"github.com/sonde-probe/sonde/wasmhost/abi"
)

// outline is what can be seen of a module without running it.
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

// outlineOf walks over a module's sections.
func outlineOf(module []byte) (outline, error) {
	o := outline{Imports: []string{}, Exports: []string{}, Sections: make(map[string]int)}
	for s, err := range abi.Sections(module) {
		if err != nil {
			return o, err
		}
		name := fmt.Sprintf("section %d", s.ID)
		if int(s.ID) < len(sectionNames) {
			name = sectionNames[s.ID]
		}
		if s.ID == abi.SectionCustom {
			name = clean(s.Name)
		}
		o.Sections[name] += len(s.Body)
		w := &walker{rest: s.Body}
		o.read(s.ID, w)
		if w.err != nil {
			return o, fmt.Errorf("%s section: %w", name, w.err)
		}
	}
	return o, nil
}

func (o *outline) read(section byte, w *walker) {
	switch section {
	case abi.SectionImport:
		w.each(func() {
			o.Imports = append(o.Imports, clean(w.name())+"."+clean(w.name()))
			w.importType()
		})
	case abi.SectionExport:
		w.each(func() {
			o.Exports = append(o.Exports, clean(w.name()))
			w.byte()
			w.number()
		})
	case abi.SectionMemory:
		w.each(func() { o.Memory.Least, o.Memory.Most = w.limits() })
	}
}

// walker reads what stands in a section. After an error it reads zeros.
type walker struct {
	rest []byte
	err  error
}

var errShort = errors.New("it ends too early")

func (w *walker) fail(err error) {
	if w.err == nil {
		w.err, w.rest = err, nil
	}
}

func (w *walker) byte() byte {
	if len(w.rest) == 0 {
		w.fail(errShort)
		return 0
	}
	b := w.rest[0]
	w.rest = w.rest[1:]
	return b
}

func (w *walker) number() uint32 {
	n, rest, err := abi.Uint32(w.rest)
	if err != nil {
		w.fail(err)
		return 0
	}
	w.rest = rest
	return n
}

func (w *walker) name() string {
	b, rest, err := abi.Bytes(w.rest)
	if err != nil {
		w.fail(err)
		return ""
	}
	w.rest = rest
	return string(b)
}

// each calls read for each element. An element takes a byte or more.
func (w *walker) each(read func()) {
	n := w.number()
	if int64(n) > int64(len(w.rest)) {
		w.fail(errShort)
	}
	for range n {
		if w.err != nil {
			return
		}
		read()
	}
}

// importType skips the type of an import.
func (w *walker) importType() {
	switch kind := w.byte(); kind {
	case 0: // function
		w.number()
	case 1: // table
		w.byte()
		w.limits()
	case 2: // memory
		w.limits()
	case 3: // global
		w.byte()
		w.byte()
	case 4: // tag
		w.byte()
		w.number()
	default:
		w.fail(fmt.Errorf("an import of the unknown kind %d", kind))
	}
}

// pageSize is that of a module's memory.
const pageSize = 64 << 10

func (w *walker) limits() (least, most int64) {
	flags := w.byte()
	least = int64(w.number()) * pageSize
	if flags&1 != 0 {
		most = int64(w.number()) * pageSize
	}
	return least, most
}

// clean makes a name from a stranger fit to be shown.
func clean(s string) string { return oneLine(s, abi.MaxName*2) }
