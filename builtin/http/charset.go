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

// text is a body, up to maxBody, in which assertions search.
type text struct {
	inUTF8  []byte // in UTF-8 if the charset is known, otherwise as received
	isWhole bool
	charset string // the declared charset, if it is unknown
}

// Byte order marks, which are not part of the text, and names of charsets.
var (
	byteOrderMark        = []byte("\ufeff")
	utf16LittleEndian    = []byte("\xff\xfe")
	utf16BigEndian       = []byte("\xfe\xff")
	windows1252Specials  = []rune("€\u0081‚ƒ„…†‡ˆ‰Š‹Œ\u008dŽ\u008f\u0090‘’“”•–—˜™š›œ\u009džŸ") // 0x80 to 0x9f
	charsetsOfUTF8       = []string{"", "utf-8", "utf8", "us-ascii", "ascii"}
	charsetsOfUTF16      = []string{"utf-16", "utf-16le", "ucs-2", "iso-10646-ucs-2"}
	charsetsOf1252       = []string{"iso-8859-1", "iso8859-1", "iso_8859-1", "latin1", "l1", "windows-1252", "cp1252"}
	charsetsWithoutASCII = []string{"utf-32", "utf-32le", "utf-32be", "utf-7"} // encode ASCII characters by other bytes
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

// textOf decodes a body. As in the Encoding Standard of WHATWG, a byte order mark takes precedence over the Content-Type, UTF-16 is
// little-endian, and ISO-8859-1 is windows-1252. Unlike there, a body declared as windows-1252 that is valid UTF-8 is decoded as
// UTF-8: servers declare the former by default.
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

// decodeUTF16 decodes UTF-16. If the body is not whole, it omits a character that is cut off at the end.
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

// beyondASCII matches the text of an assertion that concerns non-ASCII characters.
var beyondASCII = regexp.MustCompile(`[^\x00-\x7f]|\\[pPx]`)

// canJudge reports whether an assertion can be judged by the bytes of the text: in most unknown charsets, only one about ASCII can.
func (t *text) canJudge(assertion string) bool {
	return t.charset == "" || !beyondASCII.MatchString(assertion) && !slices.Contains(charsetsWithoutASCII, t.charset)
}
