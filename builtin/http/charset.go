package httpprobe

import (
	"bytes"
	"encoding/binary"
	"regexp"
	"slices"
	"strings"
	"unicode/utf16"
	"unicode/utf8"
)

// text is a body in which assertions look for texts, up to maxBody of it.
type text struct {
	inUTF8  []byte // if its charset is known; otherwise as it came
	isWhole bool
	charset string // one that is not known, as the server declares it
}

// Byte order marks, each of which is no part of the text that it begins.
var (
	byteOrderMark        = []byte("\ufeff")
	utf16LittleEndian    = []byte("\xff\xfe")
	utf16BigEndian       = []byte("\xfe\xff")
	windows1252Specials  = []rune("€\u0081‚ƒ„…†‡ˆ‰Š‹Œ\u008dŽ\u008f\u0090‘’“”•–—˜™š›œ\u009džŸ") // 0x80 to 0x9f
	charsetsOfUTF8       = []string{"", "utf-8", "utf8", "us-ascii", "ascii"}
	charsetsOfUTF16      = []string{"utf-16", "utf-16le", "ucs-2", "iso-10646-ucs-2"}
	charsetsOf1252       = []string{"iso-8859-1", "iso8859-1", "iso_8859-1", "latin1", "l1", "windows-1252", "cp1252"}
	charsetsWithoutASCII = []string{"utf-32", "utf-32le", "utf-32be", "utf-7"} // ASCII is written by other bytes
)

// charsetOf returns the charset that a Content-Type declares, in lower case; "" for none.
func charsetOf(contentType string) string {
	for parameter := range strings.SplitSeq(strings.ToLower(contentType), ";") {
		if name, value, _ := strings.Cut(parameter, "="); strings.TrimSpace(name) == "charset" {
			return strings.Trim(value, " \t\"'")
		}
	}
	return ""
}

// isUTF16 reports whether a body begins with a byte order mark of UTF-16.
func isUTF16(body []byte) bool {
	return bytes.HasPrefix(body, utf16LittleEndian) || bytes.HasPrefix(body, utf16BigEndian)
}

// textOf decodes a body. As in the Encoding Standard of WHATWG, a byte order mark goes before what the Content-Type declares, UTF-16 is
// little-endian, and ISO-8859-1 is windows-1252. What is valid UTF-8 is not taken for the latter: servers declare it by default.
func textOf(body []byte, isWhole bool, contentType string) text {
	t := text{inUTF8: body, isWhole: isWhole}
	switch charset := charsetOf(contentType); {
	case bytes.HasPrefix(body, byteOrderMark):
		t.inUTF8 = body[len(byteOrderMark):]
	case bytes.HasPrefix(body, utf16LittleEndian):
		t.inUTF8 = decodeUTF16(body[2:], isWhole, binary.LittleEndian)
	case bytes.HasPrefix(body, utf16BigEndian):
		t.inUTF8 = decodeUTF16(body[2:], isWhole, binary.BigEndian)
	case slices.Contains(charsetsOfUTF8, charset):
	case slices.Contains(charsetsOfUTF16, charset):
		t.inUTF8 = decodeUTF16(body, isWhole, binary.LittleEndian)
	case charset == "utf-16be":
		t.inUTF8 = decodeUTF16(body, isWhole, binary.BigEndian)
	case !slices.Contains(charsetsOf1252, charset):
		t.charset = charset
	case !utf8.Valid(body):
		t.inUTF8 = decode1252(body)
	}
	return t
}

// decodeUTF16 leaves out a character that is cut off, if more follows.
func decodeUTF16(body []byte, isWhole bool, order binary.ByteOrder) []byte {
	units := make([]uint16, 0, len(body)/2+1)
	for ; len(body) >= 2; body = body[2:] {
		units = append(units, order.Uint16(body))
	}
	switch n := len(units); {
	case !isWhole && n > 0 && units[n-1]>>10 == 0xd800>>10: // the first half of a surrogate pair
		units = units[:n-1]
	case isWhole && len(body) > 0:
		units = append(units, utf8.RuneError)
	}
	return []byte(string(utf16.Decode(units)))
}

func decode1252(body []byte) []byte {
	decoded := make([]byte, 0, len(body)+len(body)/4)
	for _, c := range body {
		r := rune(c)
		if 0x80 <= c && c <= 0x9f {
			r = windows1252Specials[c-0x80]
		}
		decoded = utf8.AppendRune(decoded, r)
	}
	return decoded
}

// beyondASCII matches an assertion, as the configuration writes it, that is about other characters than those of ASCII.
var beyondASCII = regexp.MustCompile(`[^\x00-\x7f]|\\[pPx]`)

// canJudge reports whether an assertion can be judged in the bytes of a text. In most charsets that is so of ASCII.
func (t *text) canJudge(assertion string) bool {
	return t.charset == "" || !beyondASCII.MatchString(assertion) && !slices.Contains(charsetsWithoutASCII, t.charset)
}
