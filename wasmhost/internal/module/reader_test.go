package module

import (
	"bytes"
	"math"
	"slices"
	"strings"
	"testing"
)

// wantError fails unless an error contains want, or is nil if want is "".
func wantError(t *testing.T, err error, want string) {
	t.Helper()
	if (err == nil) != (want == "") || err != nil && !strings.Contains(err.Error(), want) {
		t.Errorf("got the error %v, want %q", err, want)
	}
}

func TestUnsignedNumbersAreRead(t *testing.T) {
	for name, test := range map[string]struct {
		in   string
		want uint32
		err  string
	}{
		"one byte":             {"\x7f", 127, ""},
		"two bytes":            {"\x80\x01", 128, ""},
		"padded":               {"\x81\x80\x00", 1, ""},
		"largest":              {"\xff\xff\xff\xff\x0f", math.MaxUint32, ""},
		"33 bits":              {"\xff\xff\xff\xff\x1f", 0, "more than 32 bits"},
		"six bytes":            {"\x80\x80\x80\x80\x80\x00", 0, "more than 32 bits"},
		"cut short":            {"\x80", 0, "too"},
		"nothing":              {"", 0, "too"},
		"zero, and a byte too": {"\x00\x01", 0, "1 bytes are left over"},
	} {
		t.Run(name, func(t *testing.T) {
			r := newReader([]byte(test.in))
			if got := r.uint32(); got != test.want {
				t.Errorf("got %d, want %d", got, test.want)
			}
			wantError(t, r.end(), test.err)
		})
	}
}

func TestSignedNumbersAreRead(t *testing.T) {
	for name, test := range map[string]struct {
		in   string
		most int
		want int64
		err  string
	}{
		"positive":            {"\x3f", 5, 63, ""},
		"negative":            {"\x40", 5, -64, ""},
		"minus one":           {"\x7f", 1, -1, ""},
		"two bytes":           {"\xc0\x00", 5, 64, ""},
		"padded":              {"\xff\xff\x7f", 5, -1, ""},
		"largest of 64 bits":  {"\xff\xff\xff\xff\xff\xff\xff\xff\xff\x00", 10, math.MaxInt64, ""},
		"smallest of 64 bits": {"\x80\x80\x80\x80\x80\x80\x80\x80\x80\x7f", 10, math.MinInt64, ""},
		"too long":            {"\x80\x80\x80\x80\x80\x00", 5, 0, "more than 5 bytes"},
		"cut short":           {"\x80", 5, 0, "ends too early"},
	} {
		t.Run(name, func(t *testing.T) {
			r := newReader([]byte(test.in))
			got := r.signed(test.most)
			if err := r.end(); err == nil && got != test.want {
				t.Errorf("got %d, want %d", got, test.want)
			}
			wantError(t, r.end(), test.err)
		})
	}
}

func TestCountsAreBounded(t *testing.T) {
	for name, test := range map[string]struct {
		in         string
		most, size uint32
		want       uint32
		err        string
	}{
		"none":              {"\x00", 0, 1, 0, ""},
		"as many as fit":    {"\x02abcd", 2, 2, 2, ""},
		"more than fit":     {"\x03abcd", 9, 2, 0, "3 entries cannot be in the 4 bytes that are left"},
		"more than allowed": {"\x03abcdef", 2, 2, 0, "3 entries, at most 2 are allowed"},
		"product of 33 bits": {"\x80\x80\x80\x80\x08abcd", math.MaxUint32, 2, 0,
			"2147483648 entries cannot be in the 4 bytes that are left"},
	} {
		t.Run(name, func(t *testing.T) {
			r := newReader([]byte(test.in))
			if got := r.count(test.most, test.size); got != test.want {
				t.Errorf("got %d, want %d", got, test.want)
			}
			wantError(t, r.err, test.err)
		})
	}
}

func TestNamesBytesAndIndicesEndWithTheReader(t *testing.T) {
	if r := newReader([]byte("\x02abc")); r.name() != "ab" || r.byte() != 'c' || r.end() != nil {
		t.Errorf("a name and a byte: %v", r.err)
	}
	for name, read := range map[string]func(*reader){
		"name":  func(r *reader) { r.name() },
		"bytes": func(r *reader) { r.bytes(math.MaxUint32) },
		"byte":  func(r *reader) { r.byte(); r.byte(); r.byte() },
	} {
		r := newReader([]byte("\x02a"))
		read(r)
		wantError(t, r.err, "ends too early")
		if r.offset() != 2 || r.byte() != 0 {
			t.Errorf("%s: after an error there is more to read", name)
		}
	}
	r := newReader([]byte("\x01\x02"))
	if r.index(2, "table") != 1 || r.err != nil {
		t.Errorf("an index: %v", r.err)
	}
	r.index(2, "table")
	wantError(t, r.err, "there is no table 2")
}

func TestTheFirstErrorIsKept(t *testing.T) {
	r := newReader([]byte("\x03ab"))
	r.count(2, 1)
	r.fail(errShort)
	wantError(t, r.end(), "at most 2 are allowed")
	n := 0
	for range r.each(5) {
		n++
	}
	if n > 0 {
		t.Errorf("Each yields %d numbers after an error", n)
	}
	ok := newReader(nil)
	if got := slices.Collect(ok.each(3)); !slices.Equal(got, []uint32{0, 1, 2}) {
		t.Errorf("Each yields %v", got)
	}
}

func TestOffsetsSelectWhatWasRead(t *testing.T) {
	r := newReader([]byte("abcd"))
	r.byte()
	from := r.offset()
	r.bytes(2)
	if got := r.since(from); !bytes.Equal(got, []byte("bc")) {
		t.Errorf("got %q", got)
	}
}
