package module

import (
	"bytes"
	"testing"
)

// Each case has the bytes of a type and the expected error, which is "" for types of WebAssembly
// 2.0. The bytes 0x63 and 0x64 start typed references, 0x69 is exnref, 0x6e anyref, 0x77 i8.
func TestTypesAreThoseOfWebAssembly2(t *testing.T) {
	read := map[string]func(*reader){
		"value":    func(r *reader) { r.valueType() },
		"ref":      func(r *reader) { r.refType() },
		"values":   func(r *reader) { r.valueTypes() },
		"function": func(r *reader) { r.functionType() },
		"block":    func(r *reader) { r.blockType(2) },
		"limits":   func(r *reader) { r.limits() },
		"table":    func(r *reader) { r.tableType() },
		"global":   func(r *reader) { r.globalType() },
		"import":   func(r *reader) { r.importType(1 << 20) },
	}
	for _, test := range []struct{ kind, in, err string }{
		{"value", "\x7f", ""}, {"value", "\x7e", ""}, {"value", "\x7d", ""}, {"value", "\x7c", ""},
		{"value", "\x7b", ""}, {"value", "\x70", ""}, {"value", "\x6f", ""},
		{"value", "\x63", "0x63 is unknown"}, {"value", "\x64", "0x64 is unknown"}, {"value", "\x69", "0x69 is unknown"},
		{"value", "\x6e", "0x6e is unknown"}, {"value", "\x77", "0x77 is unknown"}, {"value", "\x40", "0x40 is unknown"},
		{"value", "\x80", "0x80 is unknown"}, {"value", "\x00", "0x0 is unknown"}, {"value", "", "ends too early"},

		{"ref", "\x70", ""}, {"ref", "\x6f", ""},
		{"ref", "\x7f", "0x7f is unknown"}, {"ref", "\x63", "0x63 is unknown"}, {"ref", "\x69", "0x69 is unknown"},

		{"values", "\x00", ""}, {"values", "\x02\x7f\x70", ""},
		{"values", "\x02\x7f", "2 entries cannot be"}, {"values", "\x02\x7f\x64", "0x64 is unknown"},
		{"values", "\xe9\x07" + string(bytes.Repeat([]byte{typeI32}, 1001)), "1001 entries, at most 1000"},

		{"function", "\x60\x01\x7f\x01\x7e", ""},
		{"function", "\x5f\x01\x7f\x00", "form 0x5f is unknown"}, {"function", "\x60\x01\x7f", "ends too early"},

		{"block", "\x40", ""}, {"block", "\x7f", ""}, {"block", "\x70", ""}, {"block", "\x01", ""}, {"block", "\x81\x00", ""},
		{"block", "\x02", "type 2 of a block is unknown"}, {"block", "\x82\x00", "type 2 of a block is unknown"},
		{"block", "\x63", "of a block is unknown"}, {"block", "\x64", "of a block is unknown"}, {"block", "\x69", "of a block is unknown"},
		{"block", "\xff\x7f", "type -1 of a block is unknown"}, {"block", "\xc0\x7f", "type -64 of a block is unknown"},
		{"block", "\x80\x80\x80\x80\x80\x00", "more than 5 bytes"}, {"block", "", "ends too early"},

		{"limits", "\x00\x01", ""}, {"limits", "\x01\x01\x02", ""},
		{"limits", "\x02\x01", "shared between threads"}, {"limits", "\x03\x01\x02", "shared between threads"},
		{"limits", "\x04\x01", "64 bits"}, {"limits", "\x08\x01", "unknown flags 0x8"}, {"limits", "\x01\x01", "too"},

		{"table", "\x70\x00\x01", ""}, {"table", "\x40\x00\x70\x00\x01", "0x40 is unknown"}, {"table", "\x64\x70\x00\x01", "0x64 is unknown"},

		{"global", "\x7f\x00", ""}, {"global", "\x6f\x01", ""}, {"global", "\x7f\x02", "unknown flags 0x2"}, {"global", "\x64\x70\x00", "0x64 is unknown"},

		{"import", "\x00\x05", ""}, {"import", "\x01\x70\x00\x01", ""}, {"import", "\x02\x00\x01", ""}, {"import", "\x03\x7f\x01", ""},
		{"import", "\x04\x00\x00", "kind 4 is unknown"}, {"import", "", "ends too early"},
	} {
		t.Run(test.kind, func(t *testing.T) {
			r := newReader([]byte(test.in))
			read[test.kind](r)
			err := r.err
			if err == nil {
				err = r.end()
			}
			if wantError(t, err, test.err); t.Failed() {
				t.Logf("for % x", test.in)
			}
		})
	}
}

func TestWhatTypesDeclareIsReturned(t *testing.T) {
	params, results := newReader([]byte("\x60\x02\x7f\x7e\x01\x7d")).functionType()
	if !bytes.Equal(params, []byte{typeI32, typeI64}) || !bytes.Equal(results, []byte{typeF32}) {
		t.Errorf("a function has %x and %x", params, results)
	}
	for in, want := range map[string]int64{"\x40": noResult, "\x7f": -1, "\x6f": -17, "\x01": 1} {
		if got := newReader([]byte(in)).blockType(2); got != want {
			t.Errorf("the block type % x is %d, want %d", in, got, want)
		}
	}
	if kind, index := newReader([]byte("\x00\x81\x01")).importType(1 << 20); kind != kindFunction || index != 129 {
		t.Errorf("an import is of kind %d, type %d", kind, index)
	}
	for _, l := range []limits{{Min: 1}, {Min: 1, Max: 200, HasMax: true}, {}} {
		if got := newReader(appendLimits(nil, l)).limits(); got != l {
			t.Errorf("%+v became %+v", l, got)
		}
	}
}
