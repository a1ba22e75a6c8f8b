package module

import (
	"bytes"
	"testing"

	"github.com/sonde-probe/sonde/wasmhost/abi"
)

// assemble returns a module with sections.
func assemble(sections ...[]byte) []byte {
	return append([]byte("\x00asm\x01\x00\x00\x00"), bytes.Join(sections, nil)...)
}

func section(id byte, body string) []byte { return appendSection(nil, id, []byte(body)) }

func custom(name, body string) []byte {
	return section(abi.SectionCustom, string(appendName(nil, name))+body)
}

func TestSectionsAreSplit(t *testing.T) {
	for name, test := range map[string]struct {
		wasm []byte
		err  string
	}{
		"none":                      {assemble(), ""},
		"in order":                  {assemble(section(sectionType, "\x00"), section(sectionDataCount, "\x00"), section(sectionCode, "\x00")), ""},
		"custom ones between":       {assemble(custom("x", "1"), section(sectionType, "\x00"), custom("x", "2")), ""},
		"not a module":              {[]byte("\x7fELF"), "WebAssembly"},
		"out of order":              {assemble(section(sectionCode, "\x00"), section(sectionType, "\x00")), "section 1 is unknown, beyond WebAssembly 2.0, or out of order"},
		"data count after the code": {assemble(section(sectionCode, "\x00"), section(sectionDataCount, "\x00")), "out of order"},
		"twice":                     {assemble(section(sectionType, "\x00"), section(sectionType, "\x00")), "section 1 occurs twice"},
		"an empty one twice":        {assemble(section(sectionType, ""), section(sectionType, "")), "section 1 occurs twice"},
		"tags, of exceptions":       {assemble(section(13, "\x00")), "section 13 is unknown"},
		"a name that is not UTF-8":  {assemble(custom("\xff", "")), "not UTF-8"},
		"longer than the module":    {append(assemble(), sectionType, 5, 0), "too"},
		"a name that is too long":   {assemble(section(abi.SectionCustom, "\x05ab")), "too"},
	} {
		t.Run(name, func(t *testing.T) {
			_, err := split(test.wasm)
			wantError(t, err, test.err)
		})
	}
}

func TestTheBodiesOfSectionsAreReturned(t *testing.T) {
	all, err := split(assemble(section(sectionType, "types"), custom("other", "dropped"), section(sectionData, "data")))
	if err != nil {
		t.Fatal(err)
	}
	if string(all[sectionType]) != "types" || string(all[sectionData]) != "data" || all[sectionCode] != nil {
		t.Errorf("got %q", all)
	}
}

func TestWhatIsWrittenCanBeRead(t *testing.T) {
	for _, n := range []uint32{0, 127, 128, 1 << 14, 1<<32 - 1} {
		if got := newReader(appendUint32(nil, n)).uint32(); got != n {
			t.Errorf("%d became %d", n, got)
		}
	}
	if got := newReader(appendName(nil, "name")).name(); got != "name" {
		t.Errorf("a name became %q", got)
	}
}
